"""Kafka's messages: a module for each api key, made by `scripts/kafka_tables.py`."""
