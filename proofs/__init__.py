"""What a machine has checked: see README.md beside this file."""
