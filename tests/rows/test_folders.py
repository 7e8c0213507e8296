"""A folder's files are each read once, whatever names lead to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sklar.errors import DataError
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows.read import files_of, open_source

SCHEMA = Schema.from_toml("[attributes.x]\ntype = 'integer'\nedges = [0, 10, 20]")


def refusal(data: object) -> str:
    with pytest.raises(DataError) as refused:
        open_source(data)
    return str(refused.value)


def rows(data: object) -> int:
    return sum(batch.height for batch in open_source(data).batches(("x",)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.csv").write_text("x\n" + "5\n" * 100)
    return tmp_path / "d"


SAME = "are the same file (a link, or a path given twice): its rows would count twice. Remove one of them."


def test_a_symbolic_link_beside_its_file_is_refused(folder: Path) -> None:
    (folder / "b.csv").symlink_to("a.csv")
    message = f"'{folder / 'a.csv'}' and '{folder / 'b.csv'}' {SAME}"
    assert refusal(folder) == message
    with pytest.raises(DataError, match="are the same file"):
        fit(folder, SCHEMA, epsilon=1.0)


def test_a_hard_link_is_refused(folder: Path) -> None:
    os.link(folder / "a.csv", folder / "b.csv")
    assert refusal(folder) == f"'{folder / 'a.csv'}' and '{folder / 'b.csv'}' {SAME}"


def test_two_links_to_one_file_elsewhere_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("x\n1\n")
    (folder / "b.csv").symlink_to(tmp_path / "far.csv")
    assert rows(folder) == 101
    (folder / "c.csv").symlink_to("b.csv")
    assert refusal(folder) == f"'{folder / 'b.csv'}' and '{folder / 'c.csv'}' {SAME}"


def test_linked_folders_are_read_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.csv").write_text("x\n1\n")
    (folder / "in").symlink_to(tmp_path / "more")
    assert rows(folder) == 101
    (folder / "in2").symlink_to(tmp_path / "more")
    message = "are the same folder (one is a link): its rows would count twice. Remove one of them."
    assert refusal(folder).endswith(message)
    (folder / "in2").unlink()
    (folder / "in").unlink()
    (folder / "round").symlink_to(folder)
    assert refusal(folder) == f"'{folder}' and '{folder / 'round'}' {message}"


def test_a_link_to_nothing_is_refused(folder: Path) -> None:
    (folder / "b.csv").symlink_to("gone.csv")
    assert refusal(folder) == (
        f"'{folder / 'b.csv'}' is a link to a file that does not exist. Remove it, or bring the file back."
    )
    (folder / "_b.csv").symlink_to("gone.csv")
    (folder / "b.csv").unlink()
    assert files_of(folder) == [folder / "a.csv"]


def test_a_list_of_paths_is_one_table(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n2\n")
    both = [folder, str(tmp_path / "b.csv")]
    assert rows(both) == 102
    assert open_source(both).name == "the list of 2 paths"
    assert sum(batch.height for batch in open_source(both).scan(("x",))) == 102
    twice = [folder / "a.csv", f"{folder}/../d/a.csv"]
    assert refusal(twice) == f"'{twice[0]}' and '{twice[1]}' {SAME}"
    assert refusal([folder, folder / "a.csv"]) == f"'{folder / 'a.csv'}' and '{folder / 'a.csv'}' {SAME}"
    (tmp_path / "link.csv").symlink_to(tmp_path / "b.csv")
    assert refusal([tmp_path / "b.csv", tmp_path / "link.csv"]).endswith(SAME)
    assert refusal([tmp_path / "no.csv"]) == f"file '{tmp_path / 'no.csv'}' does not exist. Check the path."
    (tmp_path / "c.csv").write_text("y\n1\n")
    assert "have different columns" in refusal([tmp_path / "b.csv", tmp_path / "c.csv"])
