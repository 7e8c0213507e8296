"""The page that a report is written on: HTML pieces and one style sheet. Every text that comes in is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_CSS = """
:root{color-scheme:light dark;--page:#fff;--panel:#f5f7fa;--ink:#16202c;--soft:#4a5766;--line:#d5dce4;--link:#1d4f9c;
--bar:#5f86c4;--point:#c2410c;--heat:#1446b4;--warn:#9a1b1b;--warn-page:#fdecec}
@media (prefers-color-scheme:dark){:root{--page:#10161e;--panel:#19222d;--ink:#eef2f6;--soft:#aebbc9;--line:#33404e;
--link:#8fbdf5;--bar:#5f8fd0;--point:#fb923c;--heat:#38bdf8;--warn:#ffb4b4;--warn-page:#3a1518}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main,footer{max-width:68rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.5rem}
h1,h2,h3{font-family:Charter,"Bitstream Charter",Georgia,Cambria,serif;line-height:1.25;font-weight:600}
h1{font-size:clamp(1.7rem,4.5vw,2.5rem);margin:.2rem 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.5rem;margin:0 0 .7rem}
h3{font-size:1.06rem;margin:1.4rem 0 .4rem;overflow-wrap:anywhere}
p,ul,ol{max-width:46rem;margin:.5rem 0}li{margin:.25rem 0}
.kicker{color:var(--soft);letter-spacing:.06em;text-transform:uppercase;font-size:.8rem;font-weight:600;margin:0}
.lead{font-size:1.15rem;color:var(--soft)}
a{color:var(--link)}a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);
outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:1rem;top:1rem;background:var(--page);padding:.5rem 1rem;z-index:9}
section{padding:2.2rem 0 .4rem;border-top:1px solid var(--line);margin-top:2rem}
nav ol{columns:2;column-gap:2rem;padding-left:1.6rem;font-size:.95rem}nav li{margin:0 0 .35rem;break-inside:avoid}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:1px;background:var(--line);
border:1px solid var(--line);border-radius:.6rem;overflow:hidden;margin:1.4rem 0;padding:0}
.facts div{background:var(--panel);padding:.85rem 1rem}
.facts dt{font-size:.82rem;color:var(--soft)}.facts dd{margin:0;font-size:1.45rem;font-weight:600;
font-variant-numeric:tabular-nums}
.note{background:var(--panel);border-left:4px solid var(--bar);padding:.8rem 1rem;border-radius:0 .4rem .4rem 0;
max-width:46rem;margin:1rem 0}.note p{margin:.3rem 0}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums;margin:.8rem 0}
caption{text-align:left;color:var(--soft);padding-bottom:.4rem}
th,td{text-align:left;padding:.36rem .9rem .36rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--soft)}tbody th{color:var(--ink);font-weight:500}
td:last-child:not(.num){min-width:13rem}
.num{text-align:right;white-space:nowrap}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19.5rem,100%),1fr));gap:1.2rem 2rem;
align-items:start;margin:1rem 0}
figure{margin:0;min-width:0;break-inside:avoid}
figcaption{font-size:.92rem;color:var(--soft)}figcaption b{color:var(--ink)}
svg{display:block;width:100%;height:auto;font-family:inherit}
svg text{fill:var(--ink)}svg .soft{fill:var(--soft)}
.bar{fill:var(--bar)}.whisker{stroke:var(--ink);stroke-width:1.3;fill:none}.tick{stroke:var(--point);stroke-width:2.6;fill:none}
.axis{stroke:var(--line);stroke-width:1;fill:none}.cell{fill:var(--heat)}.frame{fill:none;stroke:var(--line)}
.line{fill:none;stroke-width:2}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;font-size:.9rem;color:var(--soft);padding:0;list-style:none}
.key svg{display:inline-block;width:1.6rem;height:.9rem;vertical-align:-.1rem;margin-right:.35rem}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.4rem;padding:.8rem 1rem;overflow-x:auto;
font-size:.88rem;line-height:1.5}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
.break{overflow-wrap:anywhere}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--link);font-weight:500}
footer{color:var(--soft);font-size:.88rem;padding-top:1.5rem;padding-bottom:3rem}
.banner{background:var(--warn-page);color:var(--warn);font-weight:700;text-align:center;padding:.55rem 1rem;
border-bottom:2px solid var(--warn)}
.banner.top{position:sticky;top:0;z-index:5}section>.banner{border:1px solid var(--warn);border-radius:.4rem;
font-size:.85rem;margin:0 0 1rem;padding:.3rem 1rem;text-align:left}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:1rem 2rem}
@media (max-width:40rem){nav ol{columns:1}section{padding-top:1.6rem}body{font-size:15.5px}
.facts{grid-template-columns:1fr 1fr}}
@media print{:root{--page:#fff;--panel:#f5f7fa;--ink:#16202c;--soft:#4a5766;--line:#d5dce4;--link:#1d4f9c;--bar:#5f86c4;
--point:#c2410c;--heat:#1446b4;--warn:#9a1b1b;--warn-page:#fdecec}body{font-size:10.5pt}nav,.skip{display:none}
.scroll,pre{overflow:visible;white-space:pre-wrap}.scroll{white-space:normal}h2,h3,caption{break-after:avoid}
tr,pre,.note,.facts{break-inside:avoid}details::details-content{content-visibility:visible;display:block}
.charts{grid-template-columns:repeat(2,1fr)}.banner.top{position:fixed;top:0;left:0;right:0}
body.private{padding-top:2.6rem}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report. `body` is HTML; `title` is text."""

    anchor: str
    title: str
    body: str


def text(value: object) -> str:
    """A text made safe for HTML, in content and in attributes. Control characters, which HTML forbids, become "
    "U+FFFD."""
    shown = "".join(
        letter if letter.isprintable() or letter == " " else "\N{REPLACEMENT CHARACTER}" for letter in str(value)
    )
    return escape(shown, quote=True)


def short(value: object, limit: int = 28) -> str:
    """A text cut to so many characters; not yet escaped."""
    whole = str(value)
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def paragraph(*sentences: str, kind: str = "") -> str:
    """A paragraph of HTML sentences."""
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{' '.join(sentences)}</p>\n"


def items(entries: Iterable[str], *, ordered: bool = False) -> str:
    """A list of HTML entries."""
    tag = "ol" if ordered else "ul"
    return f"<{tag}>\n" + "".join(f"<li>{entry}</li>\n" for entry in entries) + f"</{tag}>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str, numeric: Iterable[int] = ()) -> str:
    """A table of texts, which scrolls by itself where it is too wide. Columns in `numeric` stand to the right."""
    right = set(numeric)

    def mark(column: int) -> str:
        return ' class="num"' if column in right else ""

    header = "".join(f'<th scope="col"{mark(column)}>{text(cell)}</th>' for column, cell in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row"{mark(0)}>{text(cell)}</th>' if column == 0 else f"<td{mark(column)}>{text(cell)}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">\n<table>\n'
        f"<caption>{text(caption)}</caption>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n"
    )


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """A row of figures with their names."""
    return (
        '<dl class="facts">\n'
        + "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>\n" for name, value in entries)
        + "</dl>\n"
    )


def figure(drawing: str, caption: str) -> str:
    """A drawing with a caption in HTML."""
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{drawing}</figure>\n"


def scrolling(drawing: str, label: str, *, width: int) -> str:
    """A wide drawing that keeps its size on a phone and scrolls, by finger and by key."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}">'
        f'<div style="min-width:{width}px;max-width:{width * 3 // 2}px">{drawing}</div></div>\n'
    )


def fold(summary: str, body: str) -> str:
    """Details that open on demand, without script."""
    return f"<details>\n<summary>{text(summary)}</summary>\n{body}</details>\n"


def code(lines: str) -> str:
    """Commands or code to copy."""
    return f'<pre tabindex="0"><code>{text_lines(lines)}</code></pre>\n'


def text_lines(lines: str) -> str:
    """Escaped text that keeps its line breaks."""
    return "\n".join(text(line) for line in lines.split("\n"))


def page(
    *,
    title: str,
    kicker: str,
    heading: str,
    lead: str,
    opening: str,
    sections: Sequence[Section],
    foot: str,
    banner: str = "",
) -> str:
    """A whole HTML document. With a `banner`, it stands above all, on every printed page and in every section."""
    inner = '<p class="banner">PRIVATE: do not publish</p>\n' if banner else ""
    top = f'<div class="banner top" role="note">{text(banner)}</div>\n' if banner else ""
    contents = "".join(f'<li><a href="#{section.anchor}">{text(section.title)}</a></li>\n' for section in sections)
    body = "".join(
        f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-title">\n{inner}'
        f'<h2 id="{section.anchor}-title">{text(section.title)}</h2>\n{section.body}</section>\n'
        for section in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{text(title)}</title>\n<style>{_CSS}</style>\n</head>\n"
        f'<body class="{"private" if banner else "public"}">\n<a class="skip" href="#main">Skip to the '
        f"content</a>\n{top}"
        f'<header>\n<p class="kicker">{text(kicker)}</p>\n<h1>{text(heading)}</h1>\n<p class="lead">{lead}</p>\n'
        f'</header>\n<main id="main">\n{opening}<nav aria-label="Contents">\n<ol>\n{contents}</ol>\n</nav>\n{body}'
        f"</main>\n<footer>\n{foot}</footer>\n</body>\n</html>\n"
    )
