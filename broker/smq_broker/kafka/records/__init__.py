"""Record batches: the bytes in which Kafka's clients send and get records. It knows neither requests nor segments."""
