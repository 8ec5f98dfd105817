"""Apply: the attempt's state machine."""
