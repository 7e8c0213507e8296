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
from collections.abc import Callable
from pathlib import Path

from sklar.machine.compiled import KERNELS

KINDS = ("schema", "csv", "parquet", "model")


def member_swapped(model: bytes, data: bytes) -> bytes:
    """The model with one member replaced by these bytes (the first says which one), so that its checksum is right."""
    from tests.fuzz.test_fuzz import unzipped, zipped

    contents = unzipped(model)
    return zipped(contents | {sorted(contents)[data[0] % len(contents)]: data[1:]})


def seeds(kind: str, model: bytes) -> list[bytes]:
    """Inputs to start from: a sound one of each kind, and each member of a sound model."""
    from tests.fuzz.test_fuzz import CSV, TOML, parquet, unzipped

    if kind != "model":
        return [{"schema": TOML, "csv": CSV, "parquet": parquet()}[kind]]
    return [bytes([index]) + content for index, (_, content) in enumerate(sorted(unzipped(model).items()))]


def main() -> None:
    """Fuzz one kind of input until something escapes or the time is over."""
    import atheris

    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in KINDS:
        raise SystemExit(f"usage: python -m tests.fuzz.coverage_guided {'|'.join(KINDS)} [libFuzzer options] [folders]")
    # Compiled kernels cannot be instrumented.
    with atheris.instrument_imports(include=["sklar", "tomllib", "csv", "json", "zipfile"], exclude=[*KERNELS]):
        from tests.fuzz.test_fuzz import csv_case, model_case, parquet_case, schema_case, small_model
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = small_model(folder)
        cases: dict[str, Callable[[bytes], object]] = {
            "schema": lambda data: schema_case(data, folder),
            "csv": lambda data: csv_case(data, folder),
            "parquet": lambda data: parquet_case(data, folder),
            "model": lambda data: model_case(member_swapped(model, data), folder) if data else None,
        }
        start = folder / "start"
        start.mkdir()
        for number, seed in enumerate(seeds(kind, model)):
            (start / str(number)).write_bytes(seed)
        # The first folder is where libFuzzer keeps what it finds interesting.
        folders = [argument for argument in sys.argv[2:] if not argument.startswith("-")]
        options = [argument for argument in sys.argv[2:] if argument.startswith("-")]
        # Seeds are kept: a small member that is sound covers what a whole description does, and mutates to less.
        atheris.Setup([sys.argv[0], "-keep_seed=1", *options, *folders, str(start)], cases[kind])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
