"""The operator: the leader of all brokers."""
