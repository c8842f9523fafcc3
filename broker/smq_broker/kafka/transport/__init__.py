"""Connections of Kafka clients: frames, the order of responses, limits, and the thread that serves them."""
