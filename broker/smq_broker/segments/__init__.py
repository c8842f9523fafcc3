"""The segments that this broker hosts: opening, flushing of chunks, sealing, and the Arrow batches in memory."""
