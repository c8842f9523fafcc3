"""The segment DAG as readers see it, and consumer groups."""
