"""Load, split points, autoscaling of segments and brokers, placement and rebalancing."""
