"""OCI registries and image layouts behind one small protocol."""
