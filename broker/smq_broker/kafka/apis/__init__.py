"""The APIs of Kafka that a broker serves."""
