"""The topics that this leader manages: their state, the directory of them, and how one is adopted."""
