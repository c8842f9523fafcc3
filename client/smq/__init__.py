"""SeaweedMQ for Python programs: producers, consumers, administration."""
