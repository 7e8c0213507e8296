"""A release as a folder that can be put online as it is, and the check of such a folder.

`publish` writes it from a model file alone, `verify_folder` makes it again: every file follows from the model and from
what `passport.json` states (how many rows, the seed, the publisher). Nothing else may be in the folder.
"""

from __future__ import annotations

from sklar.trust.passport.bundle import Published, publish, verify_folder
from sklar.trust.passport.facts import Publication

__all__ = ["Publication", "Published", "publish", "verify_folder"]
