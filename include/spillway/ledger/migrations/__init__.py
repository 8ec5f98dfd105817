"""Alembic's environment: how a ledger gets from one schema revision to the next."""
