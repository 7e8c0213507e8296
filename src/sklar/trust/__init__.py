"""What lets a stranger check a release, and anybody attack the code: verify and audit."""
