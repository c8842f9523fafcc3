"""Streams to brokers: one that many producers share, or one of a producer alone; and what decides when to send."""
