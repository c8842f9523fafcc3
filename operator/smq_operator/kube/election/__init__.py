"""Elects one operator Pod as the leader, by a Lease."""
