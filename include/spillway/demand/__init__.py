"""Demand for GPUs as people look at it: figures with their age, as a table and as a chart."""
