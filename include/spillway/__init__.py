"""Spillway: GPU training across an on-premises cluster and public clouds, local first."""

__version__ = "0.1.0"
