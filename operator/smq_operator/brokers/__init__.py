"""Brokers as the leader sees them: their registry, liveness, connectivity, calls to them, and seals."""
