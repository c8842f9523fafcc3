"""The checks of callers: each call passes them before its handler runs."""
