"""The reconcile loop: desired topics against layouts and brokers, and the effects that close the gap."""
