"""The consuming side: segments are fetched ahead, group members heartbeat and commit, start positions are resolved."""
