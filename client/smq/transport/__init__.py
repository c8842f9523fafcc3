"""Connections to the leader and the brokers, directly or through a relay, and the cached view of a topic."""
