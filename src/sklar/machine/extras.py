"""Parts that need an optional dependency, and what is said when it is missing."""

from __future__ import annotations

from importlib import import_module

from sklar.errors import MissingExtraError


def require(module: str, *, what: str, package: str, extra: str) -> None:
    """Refuse, with the remedy, when `module` cannot be imported."""
    try:
        import_module(module)
    except ImportError:
        raise MissingExtraError(f"{what} needs {package}: pip install 'sklar[{extra}]'") from None
