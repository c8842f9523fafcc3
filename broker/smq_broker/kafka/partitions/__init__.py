"""The partitions that a broker leads: appends to them, and reads of their messages."""
