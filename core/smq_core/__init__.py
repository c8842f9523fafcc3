"""The decisions of SeaweedMQ: pure functions and state machines without IO, clock or randomness.

Callers pass in the time and the answers, and carry out what comes back. So the seeded simulation can replay a history.
A new engineer reads the subpackages in this order, in about an hour:

1. ``model``: ``entities`` (topics, segments, layouts), ``keyspace`` (the ring), then ``layout_transitions``: every
   change of a topic is one of these few functions.
2. ``replica``: ``log_entries``, then ``segment_replica``, which is the log of one segment on one broker with
   replication, watermark, producers' sequences and fencing.
3. ``sealing``: ``chain_sealer`` ends a segment's chunk chain; ``seal_coordinator`` decides which replica seals it, and
   when the filer alone may decide.
4. ``reconcile``: ``topic_reconciler`` drives one topic from desired state and layout to ``effects``, and takes their
   ``answers``; ``seal_planner`` has the rules for failovers, drains, manual requests and changes by load, and
   ``seal_progress`` moves the planned seals on.
5. ``scaling``: ``segment_load`` measures, ``autoscaler`` and ``split_points`` split and merge, ``placement`` and
   ``rebalancing`` choose brokers, ``broker_fleet`` decides how many there should be.
6. ``producing`` and ``reading``: the client's side. ``send_queue`` keeps a producer's batches in order across
   splits; ``segment_dag`` and ``consumer_group`` keep readers in order.

``errors`` has the public errors, and ``leader_election`` decides who leads. ``invariants`` has the promises of the
protocol, which the simulation and the chaos tests check; read it first if you want to know the goal.

import-linter checks how the subpackages may import each other.
"""
