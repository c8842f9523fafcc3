"""The APIs of the proxy: each splits a request by the brokers that it is for, and merges their responses."""
