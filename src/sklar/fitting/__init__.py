"""Noisy tables to models: post-processing."""
