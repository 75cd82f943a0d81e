"""The answers of Apache Kafka 4.3.1 to every served key and version, and this broker's beside."""
