"""What the work runs on: threads, progress, optional packages, stores of files, Spark's session."""
