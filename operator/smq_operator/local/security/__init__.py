"""Security on one machine: keys, tokens and rights in a folder, and what brokers get of them."""
