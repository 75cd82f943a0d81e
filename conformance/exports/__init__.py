"""The export under kills, beside writers, and compared with stock clients."""
