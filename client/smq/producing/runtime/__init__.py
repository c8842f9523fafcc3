"""Threads that the producers of one client share: timers, and work in the background."""
