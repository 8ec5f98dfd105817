"""A real Kubernetes control plane under the sandbox's node agents, to hold the embedded one against."""
