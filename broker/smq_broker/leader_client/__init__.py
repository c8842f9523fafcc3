"""The broker's side of the leader protocol: the session, status reports, and locating topics without a leader."""
