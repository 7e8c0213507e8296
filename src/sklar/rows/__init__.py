"""Rows to exact counts, fast and anywhere. Held to the kernel's plain routine by an equality contract."""
