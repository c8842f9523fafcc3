"""Kafka's requests and responses: their headers, bodies and versions. It knows neither sockets nor segments."""
