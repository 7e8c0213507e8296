"""Nothing exact steers a release."""
