"""Try to break the privacy of the code that is installed here, on invented tables, in a process of its own.

The attacks take the whole path of a release, from a file to a model, through the public interface alone: `release.fit`
and `release.measure`. Nothing is replaced on the way. Where an attack needs exact counts it measures with a budget that
is large enough to need no noise. A process of its own shares nothing with the one that asks: an audit cannot touch a
release that runs beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys

from sklar.errors import NoiseError
from sklar.machine.progress import SILENT, Progress
from sklar.trust.audit.comparison import Audit, Comparison

__all__ = ["Audit", "Comparison", "audit"]


def audit(*, quick: bool = False, progress: Progress = SILENT) -> Audit:
    """Run all attacks in a process of their own."""
    command = [sys.executable, "-m", "sklar.trust.audit", *(["--quick"] if quick else [])]
    findings: list[Comparison] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        progress.stage("audit", unit="attacks")
        for line in process.stdout or ():
            findings.append(Comparison(**json.loads(line)))
            progress.advance(1)
    if process.returncode or not findings:
        raise NoiseError(
            "the audit's own process must run to its end, got an error. Run python -m sklar.trust.audit to see it."
        )
    return Audit(findings=tuple(findings))
