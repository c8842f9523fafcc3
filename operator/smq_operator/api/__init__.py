"""The leader's gRPC API: its services, the consumer group coordinator, and the mapping of errors."""
