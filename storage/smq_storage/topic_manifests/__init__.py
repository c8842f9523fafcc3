"""Topic manifest files: parsing, limits, units and editing of annotations."""
