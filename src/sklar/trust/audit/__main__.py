"""The process of an audit: `python -m sklar.trust.audit [--quick]` prints one comparison a line, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from sklar.trust.audit import attacks
from sklar.trust.audit.comparison import FULL, QUICK

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sklar-audit-") as folder:
        for attack in attacks.ATTACKS:
            for comparison in attacks.carry_out(attack, Path(folder), QUICK if "--quick" in sys.argv[1:] else FULL):
                sys.stdout.write(json.dumps(asdict(comparison)) + "\n")
                sys.stdout.flush()
