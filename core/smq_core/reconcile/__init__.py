"""The topic's reconciler: from desired state, layout and brokers to the effects to carry out."""
