"""What lies in the filer and how it gets there: chunks, catalog, conditional writes and Topic manifests."""
