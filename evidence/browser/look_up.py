"""Measures how long a reader needs to look up each question of docs/internals/documentation.md.

python -m evidence look-up build/site           # writes words and seconds into that page

A browser of 1,280 × 900 pixels opens the start page, clicks the page in the navigation, then the
section in the table of contents. The seconds are those of loading, and those of reading at 240
words a minute: labels of the navigation and of the contents up to the one that is clicked, and the
section up to the end of the paragraph, row or block that has the answer.
"""

import re
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from evidence.harness.planning import parser_of, show

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "documentation.md"
ROW = re.compile(
    r"^(\| \d+ \| .+? \| \[[^\]]+\]\((\S+)#(\S+)\) \| `(.+?)` \|) \d* ?\| \d* ?\|$", re.MULTILINE
)
WORDS_PER_S = 240 / 60
MOST_S = 60
_TIMEOUT_MS = 120_000

# Words of the visible links and labels from the first to ``link``.
_LABELS = """(link, root) => {
  const shown = [...link.closest(root).querySelectorAll(".md-nav__link")];
  const before = shown.filter(one => one.offsetParent !== null &&
    (one === link || one.compareDocumentPosition(link) & Node.DOCUMENT_POSITION_FOLLOWING));
  return before.map(one => one.innerText).join(" ");
}"""
# The text from the heading to the end of the block with the answer; null without such a block.
_SECTION = """([anchor, answer]) => {
  const heading = document.getElementById(anchor), level = heading.tagName;
  for (let one = heading.nextElementSibling; one; one = one.nextElementSibling) {
    if (/^H[1-6]$/.test(one.tagName) && one.tagName <= level) return null;
    if (!one.textContent.includes(answer)) continue;
    const inner = [...one.querySelectorAll("tr, li, p, pre")]
      .filter(part => part.textContent.includes(answer));
    const block = inner.length ? inner[0] : one;
    const range = document.createRange();
    range.setStartBefore(heading);
    range.setEndAfter(block);
    block.scrollIntoView({block: "nearest"});
    return range.toString();
  }
  return null;
}"""
_IN_VIEW = """anchor => {
  const box = document.getElementById(anchor).getBoundingClientRect();
  return box.top >= 0 && box.bottom <= window.innerHeight;
}"""


class Found(NamedTuple):
    """What a reader has read and waited for; ``words`` -1: the answer is not in the section."""

    words: int
    loading_s: float

    @property
    def seconds(self):
        return self.loading_s + self.words / WORDS_PER_S


def words(text):
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def look_up(page, start, place, anchor, answer):
    """Go from the start page to the answer as a reader does, with two clicks."""
    began = time.perf_counter()
    page.goto(start)
    in_navigation = page.locator(f'.md-nav--primary a.md-nav__link[href="{place}"]').first
    read = [in_navigation.evaluate(_LABELS, ".md-nav--primary")]
    in_navigation.click()
    page.wait_for_url(f"**/{place}")
    in_contents = page.locator(f'.md-sidebar--secondary a.md-nav__link[href="#{anchor}"]')
    read.append(in_contents.evaluate(_LABELS, ".md-sidebar--secondary"))
    in_contents.click()
    page.wait_for_function(_IN_VIEW, arg=anchor)
    loading_s = time.perf_counter() - began
    section = page.evaluate(_SECTION, [anchor, answer])
    if section is None:
        return Found(-1, loading_s)
    return Found(words(" ".join([*read, section])), loading_s)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *given):
        """Log nothing."""


def all_questions(site, questions):
    """Look up all (page, anchor, answer), each in a browser without a cache."""
    from playwright.sync_api import sync_playwright

    from evidence.browser.finding import browser_path

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    start = f"http://127.0.0.1:{server.server_port}/index.html"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=browser_path(), args=["--no-sandbox"]
            )
            for place, anchor, answer in questions:
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                page = context.new_page()
                page.set_default_timeout(_TIMEOUT_MS)
                yield look_up(page, start, place, anchor, answer)
                context.close()
            browser.close()
    finally:
        server.shutdown()
        server.server_close()


def main(words=None):
    """Run the command line; return 1 if an answer is missing or takes too long."""
    parser = parser_of(__doc__)
    parser.add_argument("site", type=Path, help="the folder that make docs-site has written")
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = ROW.findall(text)
    questions = [
        (place.removeprefix("../").replace(".md", ".html"), anchor, answer)
        for _, place, anchor, answer in rows
    ]
    arguments = parser.parse_args(words)
    if arguments.plan:
        return show(row[0] for row in rows)
    failed = 0
    for row, found in zip(rows, all_questions(arguments.site, questions)):
        is_good = found.words >= 0 and found.seconds <= MOST_S
        failed += not is_good
        print(
            f"{found.words:4} words {found.loading_s:5.1f} s loading {found.seconds:5.1f} s"
            f"{'' if is_good else '  FAILED'}  {row[0]}",
            flush=True,
        )
        text = ROW.sub(
            lambda m, row=row, found=found: (  # type: ignore[misc]
                f"{m[1]} {found.words} | {found.seconds:.0f} |" if m[1] == row[0] else m[0]
            ),
            text,
        )
    DOCUMENT.write_text(text, encoding="utf-8")
    return 1 if failed else 0
