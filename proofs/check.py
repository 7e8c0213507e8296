"""Check Sensitivity.v with Coq, and its definitions against their Python twins on random inputs.

    python -m proofs.check

Coq is Debian's `coq`, or any of version 8.16 or later; nothing but its standard library is used.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proofs import arithmetic, definitions

SOURCE = Path(__file__).with_name("Sensitivity.v")
EXAMPLES = 40


def examples(seed: int) -> Iterator[tuple[str, int | list[int] | None]]:
    """Expressions in Coq, and what they are in Python."""
    draw = random.Random(seed)

    def numbers(most: int, length: int) -> list[int]:
        return [draw.randrange(most) for _ in range(length)]

    for _ in range(EXAMPLES):
        u, v = numbers(9, draw.randrange(5)), numbers(9, draw.randrange(5))
        yield f"apart {_list(u)} {_list(v)}", definitions.apart(u, v)
        yield f"steps {_list(u)} {_list(v)}", definitions.steps(u, v)
        sizes = [1 + size for size in numbers(4, 3)]
        codes = numbers(5, 3)
        yield f"place 0 {_list(sizes)} {_list(codes)}", definitions.place(0, sizes, codes)
        rows = [draw.choice([None, 0, 1, 2, 3]) for _ in range(draw.randrange(8))]
        shown = "[" + "; ".join("None" if row is None else f"Some {row}" for row in rows) + "]"
        yield f"table 4 ({shown} : list (option nat))", definitions.table(4, rows)
        weights, each = numbers(6, 4), draw.randrange(1, 12)
        whole = max(sum(weights), 1)
        yield f"dealt {each} {whole} 0 {_list(weights)}", definitions.dealt(each, whole, 0, weights)
        one, two = ([draw.random() < 0.5 for _ in range(5)] for _ in range(2))
        for k in (1, 2, 3):
            yield f"moved {k} {_bits(one)} {_bits(two)}", definitions.moved(k, one, two)


def _list(values: list[int]) -> str:
    return "[" + "; ".join(map(str, values)) + "]"


def _bits(values: list[bool]) -> str:
    return "[" + "; ".join(str(value).lower() for value in values) + "]"


def _read(printed: str) -> int | list[int] | None:
    """What Coq printed of a number, a list or an option."""
    found = [int(digits) for digits in re.findall(r"\d+", printed)]
    if printed.startswith("["):
        return found
    return found[0] if found else None


def coq(text: str) -> str:
    """What Coq prints for a file of this text; an error where it does not accept it."""
    program = shutil.which("coqc")
    if program is None:
        raise SystemExit("Coq is missing. Install it: apt-get install coq")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Checked.v").write_text(text)
        done = subprocess.run([program, "Checked.v"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> None:
    """Check all, and say so."""
    text = SOURCE.read_text()
    wanted = text.count("Print Assumptions ")
    asked = list(examples(20_261_118))
    # Numbers of the last parts are integers: what is computed is read as natural numbers.
    lines = [f"Compute ({expression})%nat." for expression, _ in asked]
    printed = coq("\n".join([text, "Close Scope Z_scope.", *lines]))
    closed = printed.count("Closed under the global context")
    if closed != wanted or not wanted:
        raise SystemExit(f"{wanted - closed} of {wanted} theorems rest on something that is assumed.")
    found = [_read(each.strip()) for each in re.findall(r"=\s(.*?)\n\s+:", printed, flags=re.DOTALL)]
    wrong = [expression for (expression, own), each in zip(asked, found, strict=True) if own != each]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(asked)} values differ between Coq and Python, first {wrong[0]}.")
    theorems = len(re.findall(r"^(?:Theorem|Lemma) ", text, flags=re.MULTILINE))
    print(f"Coq: {theorems} lemmas and theorems checked, {wanted} of them printed as resting on no axiom.")
    print(f"Definitions: {len(asked)} values are the same in Coq and in Python.")
    arithmetic.main()


if __name__ == "__main__":
    main()
