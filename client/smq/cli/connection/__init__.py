"""How a command reaches the leader and the filer, and what it says while it waits for them."""
