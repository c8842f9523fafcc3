"""What the process needs before it hosts a segment: settings, logs, clock, metrics, health and runtime tuning."""
