"""How segments are sealed: the leader's coordinator, the procedure at the chunk chain, and the deletion of a topic."""
