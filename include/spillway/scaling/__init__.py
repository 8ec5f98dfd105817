"""The decision how many nodes each pool is to have: rules, demand, wishes, one plan."""
