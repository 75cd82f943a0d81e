"""Kafka's messages: a module for each served key, by `scripts/kafka_tables.py`."""
