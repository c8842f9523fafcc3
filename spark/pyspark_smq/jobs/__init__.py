"""The data pipeline as Spark programs: compaction, backfill, aggregation, verification."""
