"""Consumer groups of Kafka clients: the state machine of a group, its offsets, and which broker coordinates it."""
