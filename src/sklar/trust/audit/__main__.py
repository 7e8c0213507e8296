"""The process of an audit: `python -m sklar.trust.audit [--quick]` prints one comparison a line, as JSON."""

from __future__ import annotations

import sys

from sklar.trust.audit.attacks import main

if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
