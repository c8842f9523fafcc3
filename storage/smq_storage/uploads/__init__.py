"""Uploads: Parquet files that producers write, and that the log refers to."""
