"""Calls to the Kubernetes API: the client, its errors, the kinds of resources, and the recorder of Events."""
