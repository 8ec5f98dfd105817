"""Two real OCI registries for tests, as pytest fixtures."""
