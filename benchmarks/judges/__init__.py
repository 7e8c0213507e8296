"""Judges that others wrote, on raw values, each in an environment of its own."""
