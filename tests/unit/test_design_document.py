"""docs/design.md names every module of the package, and only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_layers import ALLOWED

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_sink"
TEXT = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def rooms() -> dict[str, str]:
    """What the file map says of each folder of the package."""
    file_map = TEXT.split("## File map")[1].split("```")[1].split("spark_kafka_sink/\n")[1]
    parts = re.split(r"^ {2,4}(\w+)/ ", file_map, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def folders() -> list[Path]:
    found = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    return sorted(found)


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_the_file_map_names_every_module(folder):
    named = set(re.findall(r"\w+", rooms()[folder.name]))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert not modules - named


def test_the_file_map_has_no_other_folders():
    assert rooms().keys() == {folder.name for folder in folders()}


def test_each_room_knows_only_rooms_below_it() -> None:
    """The file map says so, from the top down."""
    order = [name for name in rooms() if name in ALLOWED]
    above = [
        f"{room} imports {imported}"
        for room in order
        for imported in {name.partition(".")[0] for name in ALLOWED[room]} & {*order}
        if order.index(imported) < order.index(room)
    ]
    assert len(order) > 15
    assert not above


def test_every_file_that_is_named_exists():
    names = set(re.findall(r"`((?:\w+/)*\w+\.py)`", TEXT))
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("[a-z]*/**/*.py")}
    assert len(names) > 30
    missing = {name for name in names if not any(f"/{file}".endswith(f"/{name}") for file in files)}
    assert not missing
