"""The runtime of an operator process: settings, clock, logs, tasks, store threads, and the HTTP server."""
