"""Two real S3 servers for tests, as pytest fixtures."""
