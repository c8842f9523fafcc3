"""JSON lines: read as messages or rows of a topic, and written."""
