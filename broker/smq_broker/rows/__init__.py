"""Rows in memory and between brokers: what comes, in which blocks it is kept, and how it goes to followers."""
