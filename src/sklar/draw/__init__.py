"""Models to rows: post-processing."""
