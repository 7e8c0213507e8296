"""What must be right: cells, codes, counts, noise, theorems, vault. It imports nothing else of ours but `errors`."""
