"""What a release is on disk and in other libraries: models, rows, noisy tables."""
