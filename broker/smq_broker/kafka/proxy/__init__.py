"""A proxy for Kafka clients that cannot reach the brokers: it has no segments, and sends requests on to them."""
