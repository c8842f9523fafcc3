"""The leader's world in a cluster: Topics are resources, brokers are Pods."""
