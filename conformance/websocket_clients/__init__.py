"""Programs that use Pulsar's WebSocket API in Python, Java and a browser."""
