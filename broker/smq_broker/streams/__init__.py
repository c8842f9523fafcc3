"""The Flight server and its streams: producers, tail readers, actions, and the relay."""
