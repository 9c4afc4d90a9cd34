"""Make pieces of HTML from plain text; whatever comes in as text is escaped here and nowhere else."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape
from pathlib import Path

from unbraid.reports.canvas import Figure, Section

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""The browser itself refuses anything from the network."""


@dataclass(frozen=True)
class Group:
    """Rows of a table under one heading (none if it is empty), with a soft remark beside it."""

    rows: Sequence[Sequence["Cell"]]
    heading: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere: to an anchor of this page, or to a file beside it."""

    target: str
    text: str


Cell = str | Link


def escape(text: str) -> str:
    """Text as HTML, a number kept on one line with its per cent sign."""
    return _escape(text).replace(" %", "&nbsp;%")


def heading(level: int, text: str) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{escape(text)}</p>"


def fold(summary: str, inside: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def link(anchor: str, text: str) -> str:
    return cell(Link(f"#{anchor}", text))


def cell(content: Cell) -> str:
    if isinstance(content, str):
        return escape(content)
    return f'<a href="{escape(content.target)}">{escape(content.text)}</a>'


def table(
    about: str,
    head: Sequence[str],
    groups: Sequence[Group],
    words: int = 0,
    sentences: Sequence[str] = (),
    tight: bool = False,
) -> str:
    """A table that scrolls in its own box; the last `words` columns hold words, those named hold sentences.

    A tight one is smaller, for many columns.
    """
    kinds = [""] * (len(head) - words) + ["word"] * words
    kinds = ["sentence" if name in sentences else kind for name, kind in zip(head, kinds, strict=True)]
    top = "".join(f'<th scope="col"{_class(kind)}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = "".join(_group(group, head, kinds) for group in groups)
    inside = f"<table><thead><tr>{top}</tr></thead>{body}</table>"
    box = _class("scroll tight" if tight else "scroll")
    return f'<div{box} role="region" tabindex="0" aria-label="{escape(about)}">{inside}</div>'


def section(part: Section) -> str:
    """The figures of a section with their caption, and what stands under them; without its heading."""
    figures = "".join(_figure(figure) for figure in part.figures)
    if not figures:
        return f"{paragraph(part.caption) if part.caption else ''}{part.numbers}"
    shown = f'<div class="figures">{figures}</div><figcaption>{escape(part.caption)}</figcaption>'
    return f"<figure>{shown}</figure>{part.numbers}"


def document(title: str, body: str) -> str:
    """The whole page: no scripts, no links to other files, figures and style inside."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _group(group: Group, head: Sequence[str], kinds: Sequence[str]) -> str:
    top = ""
    if group.heading:
        remark = f' <span class="soft">{escape(group.remark)}</span>' if group.remark else ""
        inside = f"<b>{escape(group.heading)}</b>{remark}"
        top = f'<tr><th class="group" scope="rowgroup" colspan="{len(head)}">{inside}</th></tr>'
    return f"<tbody>{top}{''.join(_row(row, head, kinds) for row in group.rows)}</tbody>\n"


def _row(cells: Sequence[Cell], head: Sequence[str], kinds: Sequence[str]) -> str:
    """Each cell knows its column, so that a narrow screen can show a row as a block."""
    first, *rest = zip(cells, head, kinds, strict=True)
    inside = "".join(
        f'<td{_class(kind)} data-column="{escape(column)}">{cell(content)}</td>' for content, column, kind in rest
    )
    return f'<tr><th scope="row">{cell(first[0])}</th>{inside}</tr>'


def _figure(figure: Figure) -> str:
    data = base64.b64encode(figure.png).decode()
    wide = _class("wide" if figure.wide else "")
    return f'<img{wide} src="data:image/png;base64,{data}" alt="{escape(figure.alt)}">\n'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
