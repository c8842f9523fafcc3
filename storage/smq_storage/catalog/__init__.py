"""Documents of topics in the filer: current topics, layouts, sealed segments, group positions and deleted topics."""
