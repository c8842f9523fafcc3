"""Who may do what in a release: its authority, the identities of callers, and access."""
