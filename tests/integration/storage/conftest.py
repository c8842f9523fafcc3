from support.processes.seaweed import faulty, filer_store, prefix, seaweed

__all__ = ["faulty", "filer_store", "prefix", "seaweed"]
