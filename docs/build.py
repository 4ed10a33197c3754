"""Builds the documents as HTML into build/docs, and refuses broken links. Needs no network, to build or to read.

    python docs/build.py [FOLDER]

Pages are README.md and its like at the top of the repository, and everything below docs/. A link must lead to a page,
to a heading that exists in it, or to a file of the repository, which is then copied beside the pages.
"""

from __future__ import annotations

import fnmatch
import html
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import markdown
from markdown.extensions.toc import TocExtension

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "docs"

SECTIONS = (
    ("Start", ("README.md", "docs/tutorial/README.md", "docs/glossary.md")),
    ("How to", ("docs/how_to/*.md",)),
    ("Reference", ("docs/workflow_reference.md", "docs/errors/README.md", "docs/metrics.md", "docs/benchmarks.md")),
    ("Explanation", ("docs/explanation/*.md", "docs/architecture.md")),
    ("Coming from", ("docs/migrate/*.md",)),
    ("Project", ("CONTRIBUTING.md", "CHANGELOG.md", "docs/style.md")),
)
"""The menu: heading → pages. Pages below docs/ that no pattern names are built, too, and reached by links."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · dagrl</title><link rel="stylesheet" href="{style}"></head>
<body><input type="checkbox" id="menu"><label for="menu">Menu</label><nav>{menu}</nav><main>{body}</main></body></html>
"""

STYLE = """:root{color-scheme:light dark;--line:#8884;--link:light-dark(#0550ae,#6cb6ff)}
body{margin:0;display:flex;font:16px/1.55 system-ui,sans-serif}a{color:var(--link)}
nav{flex:0 0 15rem;padding:1rem;border-right:1px solid var(--line);height:100vh;overflow:auto;position:sticky;top:0;
box-sizing:border-box;font-size:.9rem}nav h2{font-size:.8rem;margin:1rem 0 .2rem;opacity:.7}nav a{display:block}
nav a[aria-current]{font-weight:bold}main{padding:1rem 2rem 4rem;max-width:56rem;min-width:0}#menu,label{display:none}
pre{overflow:auto;padding:.7rem;border:1px solid var(--line);border-radius:6px;font-size:.85rem}
code{font-family:ui-monospace,monospace;font-size:.92em}
table{border-collapse:collapse;display:block;overflow:auto}td,th{border:1px solid var(--line);padding:.3rem .5rem;
text-align:left;vertical-align:top}img{max-width:100%}
@media(max-width:50rem){body{display:block}label{display:block;padding:.6rem 1rem}nav{display:none;position:static;
height:auto;border:0}#menu:checked~nav{display:block}main{padding:1rem}}
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One document."""

    source: str
    """Path of the Markdown file from the root of the repository."""
    title: str
    body: str
    """HTML, its links still as they are in the source."""
    anchors: frozenset[str]
    """Ids of its headings."""


def main(arguments: list[str]) -> int:
    out = Path(arguments[0]) if arguments else OUT
    site = pages()
    broken = broken_links(site)
    for line in broken:
        print(f"broken link: {line}", file=sys.stderr)
    if not broken:
        write(site, out)
        print(f"{len(site)} pages: {out / 'index.html'}")
    return 1 if broken else 0


def pages(root: Path = ROOT) -> dict[str, Page]:
    """Every document below `root`, by the path of its source."""
    sources = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return {page.source: page for page in (read(source, root) for source in sources)}


def read(source: Path, root: Path = ROOT) -> Page:
    toc = TocExtension(slugify=_slug)
    converter = markdown.Markdown(extensions=["fenced_code", "tables", "sane_lists", toc])
    text = source.read_text(encoding="utf-8")
    body = converter.convert(text)
    heading = re.search(r"^# (.*)$", text, re.MULTILINE)
    title = source.stem if heading is None else heading[1].replace("`", "")
    anchors = frozenset(html.unescape(found) for found in re.findall(r'<h\d id="([^"]*)"', body))
    return Page(source=source.relative_to(root).as_posix(), title=title, body=body, anchors=anchors)


def _slug(heading: str, separator: str) -> str:
    """As GitHub makes anchors, so that links hold in both places."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def links(page: Page) -> Iterator[str]:
    """Targets of links and images within the repository, as the page gives them."""
    for target in re.findall(r'(?:href|src)="([^"]*)"', page.body):
        plain = html.unescape(target)
        if not re.match(r"[a-z]+:", plain):
            yield plain


def target_of(page: Page, link: str, root: Path = ROOT) -> tuple[str, str]:
    """Path from the root (of a folder's README.md where it is a folder) and anchor that a link leads to."""
    path, _, anchor = unquote(link).partition("#")
    if not path:
        return page.source, anchor
    found = os.path.normpath(os.path.join(os.path.dirname(page.source), path))
    return (f"{found}/README.md" if (root / found).is_dir() else found), anchor


def broken_links(site: dict[str, Page], root: Path = ROOT) -> list[str]:
    """`page: link` of every link that leads nowhere."""
    return [
        f"{page.source}: {link}" for page in site.values() for link in links(page) if _is_broken(page, link, site, root)
    ]


def _is_broken(page: Page, link: str, site: dict[str, Page], root: Path) -> bool:
    target, anchor = target_of(page, link, root)
    if target.startswith("..") or not (root / target).is_file():
        return True
    return bool(anchor) and (target not in site or anchor not in site[target].anchors)


def write(site: dict[str, Page], out: Path, root: Path = ROOT) -> None:
    """The HTML of `site`, a style sheet, and the files that links lead to."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "style.css").write_text(STYLE, encoding="utf-8")
    for page in site.values():
        place = out / address(page.source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(render(page, site, root), encoding="utf-8")
        for link in links(page):
            target, _ = target_of(page, link, root)
            if target not in site:
                copy = out / target
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / target, copy)


def address(source: str) -> str:
    """Where the HTML of a source stands: README.md is its folder's index.html."""
    folder, name = os.path.split(source)
    return os.path.join(folder, "index.html" if name == "README.md" else f"{Path(name).stem}.html")


def render(page: Page, site: dict[str, Page], root: Path = ROOT) -> str:
    def rewritten(match: re.Match[str]) -> str:
        link = html.unescape(match[2])
        if re.match(r"[a-z]+:", link):
            return match[0]
        target, anchor = target_of(page, link, root)
        goal = _relative(page, address(target) if target in site else target)
        return f'{match[1]}="{html.escape(goal + ("#" + anchor if anchor else ""))}"'

    body = re.sub(r'(href|src)="([^"]*)"', rewritten, page.body)
    style = _relative(page, "style.css")
    return PAGE.format(title=html.escape(page.title), style=style, menu=menu(page, site), body=body)


def menu(page: Page, site: dict[str, Page]) -> str:
    parts = []
    for heading, patterns in SECTIONS:
        parts.append(f"<h2>{heading}</h2>")
        for other in (site[source] for pattern in patterns for source in fnmatch.filter(site, pattern)):
            current = ' aria-current="page"' if other is page else ""
            goal = _relative(page, address(other.source))
            parts.append(f'<a href="{goal}"{current}>{html.escape(other.title)}</a>')
    return "".join(parts)


def _relative(page: Page, goal: str) -> str:
    return os.path.relpath(goal, os.path.dirname(page.source) or ".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
