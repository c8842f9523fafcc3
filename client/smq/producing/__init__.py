"""The producing side: batches are built, encoded, partitioned by segment and sent on one stream per segment."""
