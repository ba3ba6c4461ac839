"""Pages of docs/ with tables that are made of kept results: each stands between two markers."""

from pathlib import Path

from evidence.harness.keeping import replace

DOCS = Path(__file__).parents[2] / "docs"


def table(heads, rows):
    """A table of Markdown. Numbers get separators of thousands; a line break or a bar would end a cell."""
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value):
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)


def replaced(text, name, content):
    """``text`` with what stands between the two markers of ``name`` exchanged."""
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def rendered(text, tables):
    """``text`` with all ``tables``, by the names of their markers."""
    for name, content in tables.items():
        text = replaced(text, name, content)
    return text


def write(pages):
    """Write pages again. pages: by path, what makes the tables"""
    for path, tables in pages.items():
        replace(path, rendered(path.read_text(encoding="utf-8"), tables()))
