"""File lists: the chunk files that a broker records, and the writer of their lists."""
