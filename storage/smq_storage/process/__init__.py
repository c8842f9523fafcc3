"""Operating-system helpers: the memory allocator, free ports, settings, and SeaweedFS as a child process."""
