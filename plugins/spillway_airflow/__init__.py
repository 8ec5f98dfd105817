"""Airflow adapters over the spillway library."""
