"""What pytest leaves alone where an optional dependency is missing: the studio's modules import theirs at once."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("starlette") and find_spec("uvicorn") else ["src/sklar/studio", "tests/studio"]
