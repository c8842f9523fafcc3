"""One segment on one broker: its log, its replication and its producers' state."""
