from support.in_memory.acking_engine import open_producer
from support.in_memory.consumer_bench import bench
from support.in_memory.producer_streams import driven_streams

__all__ = ["bench", "driven_streams", "open_producer"]
