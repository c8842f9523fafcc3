"""The readers of the data source: batch and stream."""
