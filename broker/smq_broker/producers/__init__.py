"""Producers: the lanes of their clients, their sessions for segments, and the checks of what they upload."""
