from support.seaweed import prefix, seaweed

__all__ = ["prefix", "seaweed"]
