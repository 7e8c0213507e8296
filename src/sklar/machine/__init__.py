"""What the work runs on: threads, progress, optional packages, Spark's session."""
