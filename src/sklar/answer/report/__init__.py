"""Reports as single HTML files: no network, no script, light and dark, readable on a phone and on paper.

`publishable` needs a model alone, so it is post-processing: it costs no privacy and may be published with the release.
Nothing here may see a row. The custodian's own report is `sklar.custodian.evaluate.private_report`, and says PRIVATE.
"""

from __future__ import annotations

from sklar.answer.report.publish import publishable

__all__ = ["publishable"]
