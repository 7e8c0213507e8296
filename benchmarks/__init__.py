"""Measurements of this package beside others: `python -m benchmarks.NAME` from the repository's root."""
