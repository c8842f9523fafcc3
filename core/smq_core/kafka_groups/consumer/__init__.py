"""Groups of the protocol in which the coordinator assigns the partitions (KIP-848, ``group.protocol=consumer``)."""
