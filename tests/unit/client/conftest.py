from support.in_memory.acking_engine import open_producer
from support.in_memory.consumer_bench import bench
from support.in_memory.producer_sessions import driven_sessions

__all__ = ["bench", "driven_sessions", "open_producer"]
