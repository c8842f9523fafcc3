"""The APIs of the listener with which clients look after topics."""
