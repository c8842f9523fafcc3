from support.processes.seaweed import prefix, seaweed

__all__ = ["prefix", "seaweed"]
