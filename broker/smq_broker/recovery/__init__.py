"""Segments that former incarnations of this broker hosted, from their journals: they only wait to be sealed."""
