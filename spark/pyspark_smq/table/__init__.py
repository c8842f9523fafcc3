"""`pyspark_smq.read`: a topic as one DataFrame, with Spark's own Parquet scan for everything that is in files."""
