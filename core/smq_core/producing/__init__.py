"""The producer's state machine: send queues, sequences and what happens when a segment is sealed."""
