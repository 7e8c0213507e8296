"""Hostile input found by coverage: the cases of `test_fuzz`, driven by atheris instead of seeded mutators.

Not part of the test sets: atheris is no dependency of this project. In an environment that has it beside Sklar and the
test dependencies:

    python -m tests.fuzz.coverage_guided schema|csv|parquet|model [-max_total_time=300 -len_control=0] [corpus folders]

What it finds ends the run with a traceback and is left in a file `crash-*`; add it to `FOUND` in `test_fuzz` and mend
the defect.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sklar.machine.compiled import KERNELS

KINDS = ("schema", "csv", "parquet", "model")


def main() -> None:
    """Fuzz one kind of input until something escapes or the time is over."""
    import atheris

    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in KINDS:
        raise SystemExit(f"usage: python -m tests.fuzz.coverage_guided {'|'.join(KINDS)} [libFuzzer options] [folders]")
    # Compiled kernels cannot be instrumented.
    with atheris.instrument_imports(include=["sklar", "tomllib", "csv", "json", "zipfile"], exclude=[*KERNELS]):
        from tests.fuzz import test_fuzz as fuzz
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        members = fuzz.unzipped(fuzz.small_model(folder))
        # Of a model one member, which the first byte says, so that its checksum is right.
        names = sorted(members)
        seeds = {"schema": [fuzz.TOML], "csv": [fuzz.CSV], "parquet": [fuzz.parquet()]}
        seeds["model"] = [bytes([number]) + members[name] for number, name in enumerate(names)]

        def case(data: bytes) -> None:
            if kind == "model" and data:
                data = fuzz.zipped(members | {names[data[0] % len(names)]: data[1:]})
            fuzz.accepted(kind, data, folder)

        start = folder / "start"
        start.mkdir()
        for number, seed in enumerate(seeds[kind]):
            (start / str(number)).write_bytes(seed)
        # The first folder is where libFuzzer keeps what it finds interesting.
        folders = [argument for argument in sys.argv[2:] if not argument.startswith("-")]
        options = [argument for argument in sys.argv[2:] if argument.startswith("-")]
        # Seeds are kept: a small member that is sound covers what a whole description does, and mutates to less.
        atheris.Setup([sys.argv[0], "-keep_seed=1", *options, *folders, str(start)], case)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
