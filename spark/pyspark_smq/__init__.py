"""Topics as Spark DataFrames: the data source `smq` for batch and streaming, and `read` for old data."""
