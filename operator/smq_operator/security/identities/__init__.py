"""Who calls: tokens of a file, of brokers, of client certificates and of an issuer."""
