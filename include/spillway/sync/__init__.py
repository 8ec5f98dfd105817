"""Dataset sync: a pure plan, then its execution."""
