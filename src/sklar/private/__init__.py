"""Every line that can see a row; the audit scope. Only `measure` lets anything out, and only with noise."""
