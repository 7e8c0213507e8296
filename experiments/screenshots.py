"""Screenshots of a report at the widths of a desktop, a tablet and a phone, in headless Chromium.

python -m experiments.screenshots report.html --out docs/images --name report
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import click

DEVICES = {"desktop": (1280, 900), "tablet": (820, 1180), "phone": (390, 844)}
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


def chromium() -> str | None:
    """Where Chromium is, None when it is not installed."""
    return shutil.which("chromium")


def shoot(
    page: Path, target: Path, *, width: int, height: int, dark: bool = False, section: str = "", wait_s: float = 60
) -> None:
    """Take a picture of a page, or of one section. Widths below 500, which Chromium refuses, are shown in a frame."""
    with tempfile.TemporaryDirectory() as folder:
        if section:
            alone = f"<style>header,footer,main>:not(#{section}){{display:none}}section{{border:0!important}}</style>"
            text = page.read_text(encoding="utf-8").replace("</head>", f"{alone}</head>", 1)
            page = Path(folder) / "section.html"
            page.write_text(text, encoding="utf-8")
        shown = page.resolve().as_uri()
        if width < 500:
            frame = Path(folder) / "frame.html"
            frame.write_text(
                f'<body style="margin:0"><iframe src="{shown}" style="border:0;width:{width}px;height:{height}px">'
            )
            shown = frame.as_uri()
        dark_mode = ["--blink-settings=preferredColorScheme=0"] if dark else []
        command = [
            chromium() or "chromium", *_QUIET, *dark_mode, "--allow-file-access-from-files",
            f"--user-data-dir={folder}/profile",
            f"--window-size={max(width, 500)},{height}", f"--screenshot={target.resolve()}", shown,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=wait_s)  # noqa: S603 - our own arguments
    squeeze(target, width)


def squeeze(target: Path, width: int) -> None:
    """Crop to the width and keep 256 colors, so that a picture stays well below 300 KB."""
    from PIL import Image

    with Image.open(target) as picture:
        cropped = picture.convert("RGB").crop((0, 0, width, picture.height))
        cropped.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)


@click.command()
@click.argument("report", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("docs/images"), show_default=True)
@click.option("--name", default="report", show_default=True)
@click.option("--height", default=2400, show_default=True)
@click.option("--dark", is_flag=True, help="A dark desktop picture as well.")
@click.option("--section", default="", help="Picture this section alone, such as margins.")
def main(report: Path, out: Path, name: str, height: int, dark: bool, section: str) -> None:  # noqa: FBT001
    """Picture REPORT at the widths of a desktop, a tablet and a phone."""
    out.mkdir(parents=True, exist_ok=True)
    for label, (width, _) in DEVICES.items():
        shoot(report, out / f"{name}-{label}.png", width=width, height=height, section=section)
    if dark:
        shoot(report, out / f"{name}-dark.png", width=1280, height=height, dark=True, section=section)
    for path in sorted(out.glob(f"{name}-*.png")):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
