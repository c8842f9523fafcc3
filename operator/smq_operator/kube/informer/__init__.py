"""Lists and watches resources, and keeps them in a cache."""
