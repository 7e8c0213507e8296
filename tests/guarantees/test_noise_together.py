"""Noise of a whole release, tested together."""
