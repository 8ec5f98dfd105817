"""The decision where a job runs: filters, scores, verdicts."""
