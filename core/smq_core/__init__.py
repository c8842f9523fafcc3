"""The decisions of SeaweedMQ: pure functions and state machines without IO, clock or randomness."""
