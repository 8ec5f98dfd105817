"""The embedded default: two sites as local processes."""
