"""A leader, brokers and SeaweedFS on this machine, for `smq dev`."""
