"""`sklar studio`: all steps in a browser on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import say
from sklar.cli.options import PATH, flag


@click.command(short_help="All steps, in your browser.")
@click.argument("folder", default=".", type=PATH)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Where to listen.  [default: a free port]")
@click.option("--browser/--no-browser", default=True, help="Open the browser.", show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="Listen on this address. Others than this machine's own need --beyond-this-machine, too.",
)
@flag(
    "--beyond-this-machine",
    "Let other machines connect to --host. PRIVATE rows then travel over the network, not encrypted.",
    to="beyond",
)
def studio(*, folder: Path, port: int, browser: bool, host: str, beyond: bool) -> None:
    """Open, describe, plan, release, look, publish and keep the books of tables in FOLDER, in your browser.

    The page is served on this machine, to your browser alone, and needs no network. All that you do is kept as files in
    FOLDER, and each page shows the commands that repeat it. Needs sklar[studio].

    \b
      sklar studio
      sklar studio census/ --no-browser --port 8642
    """
    import threading
    import webbrowser

    from sklar.machine.extras import require

    for module in ("starlette", "uvicorn"):
        require(module, what="the studio", package=module, extra="studio")
    from sklar.studio.serve import serve

    def ready(address: str) -> None:
        # Always printed: without it nobody gets in.
        click.echo(address)
        say("Open this address; it works once, for one browser. Ctrl-C ends the studio; work that runs goes on.")
        if browser:
            # A moment later, when the server answers.
            later = threading.Timer(0.5, webbrowser.open, (address,))
            later.daemon = True
            later.start()

    serve(folder, host=host, port=port, beyond=beyond, ready=ready)
