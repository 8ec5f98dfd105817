"""The SQL store of decisions, attempts, reservations and costs."""
