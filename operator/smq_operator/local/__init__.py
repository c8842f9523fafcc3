"""The world as one machine: manifests in a folder, brokers as child processes."""
