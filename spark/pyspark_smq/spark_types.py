"""Spark types for the columns of a topic, and back."""
