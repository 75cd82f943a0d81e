"""One queue of consumers of Kafka's share groups, Pulsar and HTTP, with kills."""
