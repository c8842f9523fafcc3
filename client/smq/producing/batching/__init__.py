"""Messages become batches, and batches sub-batches, one for each segment."""
