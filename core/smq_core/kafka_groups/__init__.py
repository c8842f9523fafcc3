"""Consumer groups of Kafka's classic protocol: the state machine of a group, its offsets, and who coordinates it."""
