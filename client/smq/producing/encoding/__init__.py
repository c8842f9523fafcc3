"""Encodes messages: converts values exactly, turns keys into partitions, and builds the columns of a batch."""
