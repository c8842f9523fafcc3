"""What a read covers: the files, offsets and brokers of a topic at one moment."""
