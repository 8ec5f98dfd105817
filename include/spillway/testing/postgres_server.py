"""A real PostgreSQL server for tests, as pytest fixtures."""
