"""The broker: a diskless process that holds the tails of segments."""
