"""The status of a topic: its health issues and conditions, the same for ``smq`` and ``kubectl``."""
