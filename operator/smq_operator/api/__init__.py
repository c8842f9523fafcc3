"""The leader's gRPC API: a module for each service, the checks of their requests, and the mapping of errors."""
