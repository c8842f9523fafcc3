"""The platform port over Kubernetes: topics are Topic resources, brokers are Pods."""
