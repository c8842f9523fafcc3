"""Topics as Kafka's clients name and configure them."""
