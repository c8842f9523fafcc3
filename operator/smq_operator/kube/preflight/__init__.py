"""Checks the cluster before this operator leads: RBAC, CRD schemas, conflicting releases."""
