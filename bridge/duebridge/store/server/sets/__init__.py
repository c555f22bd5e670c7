"""Sets of servers: who is the master behind Sentinel, and which node of a Cluster has a slot."""
