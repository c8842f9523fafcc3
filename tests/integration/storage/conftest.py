from support.processes.seaweed import faulty, filer_store, guarded, no_credentials, prefix, seaweed

__all__ = ["faulty", "filer_store", "guarded", "no_credentials", "prefix", "seaweed"]
