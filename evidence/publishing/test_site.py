"""The site of the documents: complete, searchable, readable without a network."""

import json
import os
import re
import subprocess
import sys

import pytest

from release.version import ROOT

# What a browser fetches to show a page.
_FETCHED = re.compile(
    r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:[^\s\">]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_readme_is_the_first_page_and_each_document_has_one(site):
    assert "write PySpark DataFrames and streams to Apache Kafka" in (
        site / "index.html"
    ).read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        assert (site / path.relative_to(ROOT / "docs").with_suffix(".html")).is_file()


def test_links_to_the_rest_of_the_repository_lead_to_its_files(site):
    assert 'href="repository/examples/quickstart.py.txt"' in (site / "index.html").read_text(
        "utf-8"
    )
    shown = site / "repository" / "examples" / "quickstart.py.txt"
    assert shown.read_text("utf-8") == (ROOT / "examples" / "quickstart.py").read_text("utf-8")
    listing = (site / "repository" / "benchmarks" / "results.html").read_text(encoding="utf-8")
    assert 'href="results/kernels.json.txt"' in listing


def test_every_option_can_be_searched_for(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    options = "".join(
        entry["text"] for entry in index["docs"] if entry["location"].startswith("options.html")
    )
    for option in ("kafka.linger.ms", "delivery.guarantee", "kafka.sasl.mechanism"):
        assert option in options


def test_nothing_is_fetched_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert _FETCHED.findall(page.read_text(encoding="utf-8")) == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\"?https?:", style.read_text(encoding="utf-8")), style
