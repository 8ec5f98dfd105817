"""How many GPUs will be wanted: rules, models, the intervals around them, and which one to believe."""
