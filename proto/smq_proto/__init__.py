"""Stubs generated from the protocol definitions."""
