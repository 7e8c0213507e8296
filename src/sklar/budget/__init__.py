"""What a release costs: plans, the search for private domains, the ledger, forecasts, certificates."""
