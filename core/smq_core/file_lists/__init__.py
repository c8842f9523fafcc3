"""The list of a sealed segment's files: its entries, how it is collected, the bounds of keys."""
