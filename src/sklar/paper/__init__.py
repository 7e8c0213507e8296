"""The paper's own method: a Gaussian copula over dummies, fitted to noisy tables and drawn from."""
