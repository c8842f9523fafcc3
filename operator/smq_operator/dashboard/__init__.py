"""The leader's page for people: what it knows, live and read-only."""
