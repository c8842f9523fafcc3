"""Chunk files: their columns, their Parquet codec and the chunk chain of a segment."""
