"""The benchmark of very many levels, on few."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.levels import main
from click.testing import CliRunner


def test_every_stage_is_told_with_its_memory(tmp_path: Path) -> None:
    sizes = ["--levels", "13", "--attributes", "4", "--rows", "300"]
    result = CliRunner().invoke(main, [*sizes, "--stage", "measure", "--json", str(tmp_path / "levels.json")])
    assert result.exit_code == 0, result.output
    assert "300 rows x 4 attributes, 13 levels, 63 two-way cells" in result.output
    found = json.loads((tmp_path / "levels.json").read_text())
    assert list(found["stages"]) == ["count", "measure"]
    assert found["cells"] == 63
