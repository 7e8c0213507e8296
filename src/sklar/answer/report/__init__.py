"""Reports as single HTML files: no network, no script, light and dark, readable on a phone and on paper.

`publishable` needs a model alone: it costs no privacy and may be published. The custodian's own report is
`sklar.custodian.evaluate.private_report`, and says PRIVATE.
"""

from sklar.answer.report.publish import publishable

__all__ = ["publishable"]
