"""An embedded Kubernetes API server with a first-fit scheduler and the node, pod and job controllers."""
