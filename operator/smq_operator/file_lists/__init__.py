"""File lists: the leader names them in the index, and builds those that no broker wrote."""
