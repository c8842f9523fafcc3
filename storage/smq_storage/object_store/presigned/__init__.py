"""Requests with presigned URLs: they need no credentials, because the URL has what the store checks."""
