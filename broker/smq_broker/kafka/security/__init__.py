"""Who a Kafka client of a secure release is, and what it may do: SASL, its rights, and the checks of its requests."""
