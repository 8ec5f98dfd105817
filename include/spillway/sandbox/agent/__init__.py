"""A node agent: an ordinary Kubernetes API client that runs a node's pods as isolated local processes."""
