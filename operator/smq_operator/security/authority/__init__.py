"""The authorities of the release, which sign its certificates, and their rotation."""
