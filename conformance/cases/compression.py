"""Every codec that a library can write is read by libraries of the other protocols."""

from conformance.clients.base import ClientMessage
from conformance.runner import Context

READERS = ("kafka-python", "confluent-kafka", "pulsar-client", "iggy-py", "httpx")
WRITERS = ("kafka-python", "confluent-kafka", "pulsar-client")
CLIENTS = [(writer, reader) for writer in WRITERS for reader in READERS]
KAFKA_CODECS = ("gzip", "snappy", "lz4")
CODECS = {
    "kafka-python": KAFKA_CODECS,
    "confluent-kafka": KAFKA_CODECS,
    "pulsar-client": ("LZ4", "ZLib", "ZSTD", "SNAPPY"),
}


def run(context: Context) -> None:
    writer, reader = context.clients
    topic = context.topic()
    sent = []
    for codec in CODECS[context.client_names[0]]:
        batch = [ClientMessage(f"{codec} message {i} ".encode() * 30) for i in range(100)]
        writer.produce(topic, batch, codec)
        sent += [item.value for item in batch]
    assert [item.value for item in reader.read(topic, len(sent))] == sent
