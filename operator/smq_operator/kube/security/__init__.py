"""Security on Kubernetes: tokens and rights are reviewed by the API server, and the release's keys are in a Secret."""
