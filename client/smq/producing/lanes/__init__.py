"""Lanes to brokers, which all producers of a client share, and what decides when to send on which of them."""
