"""The Flight server and its streams: producers, tail readers, replication in and out, actions, and the relay."""
