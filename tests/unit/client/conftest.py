from support.in_memory.producer_streams import driven_streams

__all__ = ["driven_streams"]
