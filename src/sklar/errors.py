"""What can go wrong, as one tree. Catch `SklarError` to catch all of it.

A message states the requirement, the value and the remedy. Inside the folders kernel and rows it may quote only the
schema and the settings, and whether it is raised may not depend on the rows.
"""


class SklarError(Exception):
    """Any failure that Sklar explains in one line."""


class SchemaError(SklarError):
    """The schema is not usable: syntax, a missing key, edges that do not increase, not reviewed."""


class DataError(SklarError):
    """The table cannot be read: no such file, no rows, an attribute without a column."""


class BudgetError(SklarError):
    """The privacy settings do not make a sound plan, or a plan would overspend."""


class NoiseError(SklarError):
    """The sampler met a scale it cannot draw exactly, or ran out of random words."""


class ModelError(SklarError):
    """A model file is damaged, foreign or of another format, or does not fit the request."""


class OutputError(SklarError):
    """A result could not be written."""


class LedgerError(SklarError):
    """A ledger is missing, damaged, copied, busy, or cannot be written."""


class SignatureError(SklarError):
    """A key file is missing, open to others or no key, or a signature cannot be read."""


class MissingExtraError(SklarError):
    """An optional dependency is not installed."""
