"""A topic read as a table: the manifests of sealed segments, the statistics of their files, reads of a range."""
