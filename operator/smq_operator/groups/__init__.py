"""Consumer groups: the coordinator, changes by administrators, lags, losses, and how far segments reach."""
