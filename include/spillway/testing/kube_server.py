"""The sandbox's Kubernetes API and a node agent for tests, as pytest fixtures."""
