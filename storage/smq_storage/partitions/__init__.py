"""Stored messages by partition and Kafka offset, of topics whose segments count the messages of each partition."""
