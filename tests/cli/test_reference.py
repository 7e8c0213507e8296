"""The page of all commands is what the commands say."""

from __future__ import annotations

from pathlib import Path

from sklar.cli import cli
from sklar.cli.reference import page

PAGE = Path(__file__).parent.parent.parent / "docs" / "commands.md"


def test_the_page_of_commands_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m sklar.cli.reference docs/commands.md"


def test_every_command_and_option_is_on_it() -> None:
    text = page()
    for name, command in cli.commands.items():
        assert f"\n## sklar {name}\n" in text
        for option in command.params:
            if option.param_type_name == "option" and not getattr(option, "hidden", False):
                assert option.opts[0] in text
