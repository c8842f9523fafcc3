"""Topic manifests that come with the package. They are those of the same name in the repository's examples/topics."""
