"""Answers from noisy tables and models, at no privacy cost: predicates, queries, inference, the publishable report."""
