"""The listener for Kafka clients. It is imported only by a broker that has one (``--kafka``)."""
