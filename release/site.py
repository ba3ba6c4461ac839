"""Functions that build a site from README.md and docs/, as mkdocs' hooks (``hooks`` in mkdocs.yml).

The documents link to each other, and to other files of the repository, by their paths in the
repository. These functions give each such file a place in the site, and change the links to it.
README.md is the first page, other documents are pages, folders are lists, and all other files are
text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "THIRD-PARTY.md",
    "benchmarks/README.md",
    "benchmarks/log/performance.md",
)
STYLE = """\
.md-typeset table:not([class]) th { min-width: 0; }
/* Names in tables break after dots only, see on_page_content. */
.md-typeset td code { word-break: normal; }
@media (max-width: 480px) {
  .md-typeset table:not([class]) { font-size: .55rem; }
  .md-typeset table:not([class]) :is(th, td) { padding: .4em; }
  .md-typeset td code { padding: 0; overflow-wrap: anywhere; }
  .md-typeset td:first-child code { overflow-wrap: normal; }
}
"""
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
# Folders that tools create.
_NOT_LISTED = ("__pycache__",)


def place(path: str) -> str:
    """Return the path in the site of a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        return f"repository/{path}.md"
    if path in PAGES:
        return f"repository/{path.lower()}"
    # Browsers show text files.
    return f"repository/{path}.txt"


def relinked(text: str, path: str) -> str:
    """Return the document at ``path``, with its links changed to those of the site."""

    def link(found: re.Match[str]) -> str:
        target = normpath(join(dirname(path), found[2]))
        return found[1] + relpath(place(target), dirname(place(path)) or ".")

    return _LINK.sub(link, text)


def linked_files(text: str, path: str) -> set[str]:
    """Return files and folders of the repository that a document links to."""
    return {normpath(join(dirname(path), found[2])) for found in _LINK.finditer(text)}


def _listing(folder: str) -> str:
    """Return a page for a folder."""
    here = dirname(place(folder))
    links = ((name, relpath(place(f"{folder}/{name}"), here)) for name in sorted(_names(folder)))
    return "\n".join([f"# {folder}", "", *(f"- [{name}]({link})" for name, link in links), ""])


def on_files(files: Files, config: Any) -> Files:
    """Add the linked files that are not under docs/."""
    documents = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting, added = [*PAGES, *documents], set(documents)
    while waiting:
        path = waiting.pop()
        if path not in added and not path.startswith("docs/"):
            added.add(path)
            files.append(_file(path, config))
        if path in PAGES or path in documents:
            waiting += linked_files((ROOT / path).read_text("utf-8"), path) - added - {*waiting}
        elif (ROOT / path).is_dir():
            waiting += {f"{path}/{name}" for name in _names(path)} - added - {*waiting}
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def _names(folder: str) -> set[str]:
    return {p.name for p in (ROOT / folder).iterdir() if p.name not in _NOT_LISTED}


def _file(path: str, config: Any) -> File:
    if (ROOT / path).is_dir():
        return File.generated(config, place(path), content=_listing(path))
    content = (ROOT / path).read_text(encoding="utf-8")
    return File.generated(config, place(path), content=content)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page; the links of folders' lists need no change."""
    places = {place(path): path for path in PAGES}
    path = places.get(page.file.src_uri)
    if path is None and not page.file.src_uri.startswith("repository/"):
        path = f"docs/{page.file.src_uri}"
    return markdown if path is None else relinked(markdown, path)


def on_page_content(html: str, **_: Any) -> str:
    """Allow line breaks in the names of a table's cells, so that columns fit narrow windows."""

    def broken(cell: re.Match[str]) -> str:
        return _CODE.sub(lambda code: re.sub(r"([./_:,])(?=\w)", r"\1<wbr>", code[0]), cell[0])

    return _CELL.sub(broken, html)
