"""The object store: clients, conditional writes, JSON documents and the conformance probe."""
