"""What the producers of one client share: timers, background work, and streams to brokers."""
