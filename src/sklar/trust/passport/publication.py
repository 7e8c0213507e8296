"""What the publisher alone can say of a release: who publishes it, under which license, where and when.

All of it is optional. What nobody states is marked as not stated wherever a standard asks for it; nothing is made up.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sklar.errors import OutputError

MAX_LETTERS = 500
# Names of licenses as SPDX writes them: CC-BY-4.0, ODbL-1.0.
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
WEB = re.compile(r"https?://[^\s<>\"{}|\\^`]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Who publishes a release, how to reach them, its license (SPDX or an address), its address, and its date.

    >>> Publication(publisher="Office of Statistics", license="CC-BY-4.0").license_address
    'https://spdx.org/licenses/CC-BY-4.0'
    """

    publisher: str | None = None
    contact: str | None = None
    license: str | None = None
    url: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not _is_line(value):
                raise OutputError(
                    f"{each.name} must be one line of 1 to {MAX_LETTERS} printable characters, got {value!r:.60}."
                )
        if self.url is not None and not WEB.fullmatch(self.url):
            raise OutputError(f"url must be a web address that begins with https://, got '{self.url}'.")
        if self.license is not None and not (_SPDX.fullmatch(self.license) or WEB.fullmatch(self.license)):
            raise OutputError(
                f"license must be a name such as CC-BY-4.0 (SPDX) or a web address, got '{self.license}'."
            )
        if self.date is not None and not _is_date(self.date):
            raise OutputError(f"date must be a day such as 2026-03-31, got '{self.date}'.")

    @property
    def license_address(self) -> str | None:
        """The license as a web address."""
        if self.license is None or WEB.fullmatch(self.license):
            return self.license
        return f"https://spdx.org/licenses/{self.license}"

    def to_dict(self) -> dict[str, str | None]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Publication:
        """From JSON."""
        if document.keys() != {each.name for each in fields(cls)}:
            raise OutputError(f"a publication must state {', '.join(each.name for each in fields(cls))}, or null.")
        return cls(**document)


def _is_line(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_LETTERS and value.isprintable() and bool(value.strip())


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
