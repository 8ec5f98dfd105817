"""Checkpoints: the layout on the store, commits, fences, replication."""
