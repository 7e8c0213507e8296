"""Answers from noisy tables and models, at no privacy cost: predicates, queries, inference, the publishable report."""

# Of intervals, unless another is asked for. Here: models have it as a default, and load nothing to answer with.
DEFAULT_LEVEL = 0.95
