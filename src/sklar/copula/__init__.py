"""Gaussian correlations from pair probabilities, their repair, and the models built on them."""
