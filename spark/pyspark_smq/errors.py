"""Errors as Spark users see them."""
