"""What can go wrong, as one tree. Catch `SklarError` to catch all of it.

    SklarError
    ├── SchemaError    the schema is not usable: syntax, a missing key, edges that do not increase, not reviewed
    ├── DataError      the table cannot be read: no such file, no rows, an attribute without a column
    ├── BudgetError    epsilon, delta, neighbors, mechanism or composition do not make a sound plan
    ├── NoiseError     the noise sampler met a scale it cannot draw exactly, or ran out of random words
    ├── ModelError     a model file is damaged, foreign or of another format, or does not fit the request
    ├── OutputError    a result could not be written
    ├── LedgerError    a ledger is missing, damaged, copied, busy, or cannot be written
    ├── SignatureError   a key file is missing, open to others or no key, or a signature cannot be read
    └── MissingExtraError   a part was asked for whose optional dependency is not installed

A message states the requirement, the value and the remedy. Inside the folders kernel and rows it may quote only the
schema and the settings, and whether it is raised may not depend on the rows.
"""


class SklarError(Exception):
    """Any failure that Sklar explains in one line."""


class SchemaError(SklarError):
    """The schema cannot be used as it is."""


class DataError(SklarError):
    """The table cannot be read."""


class BudgetError(SklarError):
    """The privacy settings do not make a sound plan, or a plan would overspend."""


class NoiseError(SklarError):
    """Exact noise could not be drawn."""


class ModelError(SklarError):
    """A model file is damaged, foreign, or does not fit the request."""


class OutputError(SklarError):
    """A result could not be written."""


class LedgerError(SklarError):
    """A ledger is missing, damaged, copied, busy, or cannot be written."""


class SignatureError(SklarError):
    """A key file or a signature cannot be used."""


class MissingExtraError(SklarError):
    """An optional dependency is not installed."""
