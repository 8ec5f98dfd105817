"""Clusters behind one small protocol."""
