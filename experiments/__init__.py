"""Every table and figure of the paper, one module each: `python -m experiments.NAME` from the repository's root."""
