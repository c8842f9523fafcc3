"""A topic read as a table: the file lists of sealed segments, the statistics of their files, reads of a range."""
