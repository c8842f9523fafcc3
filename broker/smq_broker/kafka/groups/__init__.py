"""Consumer groups of Kafka clients: their coordinator on this broker, and its APIs."""
