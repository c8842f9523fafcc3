"""Checks the files of a topic, from the store alone, and names those that are missing, altered or wrong."""
