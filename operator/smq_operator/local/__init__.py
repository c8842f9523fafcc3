"""The platform of one machine: manifests in a folder, brokers as child processes."""
