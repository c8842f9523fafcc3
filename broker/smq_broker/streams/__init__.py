"""The Flight server, its tail readers, its actions, and the relay."""
