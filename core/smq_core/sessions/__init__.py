"""Sessions between two processes, and the lanes on which their batches travel."""
