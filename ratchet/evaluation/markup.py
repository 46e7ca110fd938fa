"""The pieces that the release page is put together from: cells, tables, figures and sections, in one language.

A plain string is English and is said in the page's language; what others named, and what is HTML already, is `Html`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from ratchet.evaluation.language import Language


class Html(str):
    """Text that stands on the page as it is."""


def name(text: object) -> Html:
    """What others named: escaped, and never translated."""
    return Html(escape(str(text)))


def code(text: object, digits: int | None = None) -> Html:
    """A digest or an identifier, the first `digits` of it; the whole of it as the title."""
    whole = str(text)
    shown = whole[:digits]
    title = f' title="{escape(whole)}"' if shown != whole else ""
    return Html(f"<code{title}>{escape(shown)}</code>")


def cell(text: str, language: Language) -> str:
    """The content of a cell."""
    return text if isinstance(text, Html) else language.html(text)


def tag(text: str, kind: str, language: Language) -> Html:
    """A short word in a frame; `kind` is its tone: ok, no, maybe, or told."""
    return Html(f'<span class="tag {kind}">{cell(text, language)}</span>')


def simulated(language: Language) -> Html:
    """What stands beside everything that a simulation made."""
    return tag("simulated", "maybe", language)


def table(
    language: Language, label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = ()
) -> str:
    """A table with a heading per column and per row, which scrolls by itself where it is wider than the page.

    Args:
        language: to say it in.
        label: what it holds, for whoever cannot see it.
        heads: headings of the columns; the first is that of the row headings.
        rows: cells; the first of each is the heading of its row.
        words: columns that hold text, by number; the others hold figures and stand to the right.
    """

    def kind(column: int) -> str:
        return "" if column == 0 or column in words else ' class="n"'

    top = "".join(
        f'<th scope="col"{kind(at)}>{cell(head, language)}</th>' if head else f"<td{kind(at)}></td>"
        for at, head in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row">{cell(first, language)}</th>'
        + "".join(f"<td{kind(at)}>{cell(text, language)}</td>" for at, text in enumerate(rest, start=1))
        + "</tr>"
        for first, *rest in rows
    )
    wide = "wide" if len(heads) > 2 else "wide two"
    return (
        f'<div class="{wide}" role="region" tabindex="0" aria-label="{language.html(label)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def section(language: Language, key: str, title: str, content: str, note: str = "") -> str:
    """A part of the page under its heading, with an anchor; nothing where there is no content."""
    if not content:
        return ""
    told = f'<p class="muted">{cell(note, language)}</p>' if note else ""
    return f'<section id="{language.code}-{key}"><h2>{cell(title, language)}</h2>{told}{content}</section>'


def figure(caption: str, content: str, language: Language, note: str = "") -> str:
    """A plot with its caption, and what has to be read with it."""
    told = f'<p class="muted">{cell(note, language)}</p>' if note else ""
    return f"<figure><figcaption>{cell(caption, language)}</figcaption>{content}{told}</figure>"


def folded(summary: str, content: str, language: Language, paper: bool = True) -> str:
    """What unfolds on the screen, and on `paper` stands open or is left out; nothing where there is no content."""
    kind = "" if paper else ' class="screen"'
    return f"<details{kind}><summary>{cell(summary, language)}</summary>{content}</details>" if content else ""


def listed(items: Iterable[str], kind: str = "") -> str:
    """A list of what is HTML already."""
    shown = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{kind}">{shown}</ul>' if shown else ""
