"""Builders and fakes for tests; imported by tests only."""
