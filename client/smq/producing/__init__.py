"""The producing side of the client: from a message that a program sends to its receipt or its error."""
