"""Spent budgets on disk: `book` is what one does with a ledger, `chain` its file, `anchor` the second place that knows
how far it was, `meet` what the two owe each other, `key` who may write it, `check` published releases against it.
"""

from sklar.budget.ledger.book import Ledger, Paid

__all__ = ["Ledger", "Paid"]
