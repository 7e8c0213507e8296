"""Reports as single HTML files: no network, no script, light and dark, readable on a phone and on paper."""

from sklar.answer.report.publish import publishable

__all__ = ["publishable"]
