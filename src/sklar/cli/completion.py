"""`sklar completion`: the script by which a shell completes commands."""

from __future__ import annotations

import click


@click.command(short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes sklar's commands, options and file names in a SHELL.

    In bash, add this line to ~/.bashrc: eval "$(sklar completion bash)". In zsh, the same with zsh in ~/.zshrc. In
    fish: sklar completion fish > ~/.config/fish/completions/sklar.fish.

    \b
      sklar completion zsh
    """
    from click.shell_completion import get_completion_class

    shells = get_completion_class(shell)
    if shells is not None:
        click.echo(shells(context.find_root().command, {}, "sklar", "_SKLAR_COMPLETE").source())
