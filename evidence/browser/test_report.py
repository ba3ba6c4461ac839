"""The report in a headless browser: what its scripts make of the page, and of keys and pointers."""

import json
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.tools.report_lines import LineAggregate, collect
from spark_kafka_sink.tools.report_page import FollowedReport, ReportServer, render
from tests.unit.report_lines import (
    CODEC_BOUND,
    HEALTHY,
    SKEWED_KEY,
    SLOW_BROKER,
    THROTTLED,
)
from tests.unit.test_report import numbered, text

CHARTS = ("throughput", "time", "latency", "bytes", "rate")
_TIMEOUT_MS = 60_000
SCHEMES = ("light", "dark")


@pytest.fixture
def page_file(tmp_path):
    """40 batches of which three are slow."""
    lines = [numbered(HEALTHY, number) for number in range(40)]
    lines[17] = numbered(SLOW_BROKER, 17)
    lines[23] = numbered(THROTTLED, 23)
    lines[31] = numbered(SKEWED_KEY, 31)
    aggregate = LineAggregate()
    aggregate.add(text(*lines).splitlines())
    path = tmp_path / "report.html"
    path.write_text(render(aggregate), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [400, 1280])
def test_what_the_scripts_make(open_page, page_file, width):
    page = open_page(page_file, width)
    assert page.locator("canvas").count() == len(CHARTS)
    assert page.locator("th[aria-sort=none] > button").count() > 30
    labels = page.locator("#time .u-legend .u-label").all_inner_texts()
    assert {"waiting for buffer memory", "waiting for acknowledgements", "encoding"} <= set(labels)
    # Wide tables scroll by themselves: the page does not.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (page.outside, page.problems) == ([], [])


def test_the_browser_itself_refuses_addresses_outside(open_page, page_file):
    page = open_page(page_file)
    page.evaluate(
        "new Promise(done => { const one = new Image(); one.onerror = one.onload = done;"
        " one.src = 'http://127.0.0.1:9/x.png'; document.body.append(one); })"
    )
    assert [told for told in page.problems if "Content Security Policy" in told]


def test_charts_by_keys(open_page, page_file):
    page = open_page(page_file)
    chart = page.locator("#latency .chart")
    chart.focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(outline) == "solid"
    told = page.locator("#latency .readout")
    assert told.inner_text().startswith("batch 0, p50 ")
    for _ in range(17):
        page.keyboard.press("ArrowRight")
    assert told.inner_text().startswith("batch 17, p50 9")
    page.keyboard.press("PageUp")
    assert told.inner_text().startswith("batch 7, ")
    page.keyboard.press("End")
    assert told.inner_text().startswith("batch 39, ")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert told.inner_text().startswith("batch 0, ")
    for _ in range(23):
        page.keyboard.press("ArrowRight")
    assert told.inner_text().endswith("ms of pauses for quotas")


def test_all_can_be_reached_with_tab(open_page, page_file):
    """Charts, their tables, the buttons that sort, and what is folded up; each visibly."""
    page = open_page(page_file)
    wanted = page.locator(".chart, summary, th > button, .wide").count()
    seen = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "(() => { const one = document.activeElement; one.seen = one.seen || ++window.n || "
            "(window.n = 1); return [one.seen, getComputedStyle(one).outlineStyle, one.tagName]; })()"
        )
        number, outline, tag = found
        if tag != "BODY":
            assert outline != "none", tag
            seen.add(number)
    assert len(seen) == wanted


def rgb(page, selector, name):
    style = f"getComputedStyle(document.querySelector('{selector}')).{name}"
    return [int(part) for part in page.evaluate(style).split("(")[1].rstrip(")").split(",")[:3]]


def contrast(one, other):
    """As WCAG 2 has it: 4.5 is enough for text."""

    def luminance(colour):
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dark_and_light(open_page, page_file, scheme):
    page = open_page(page_file, color_scheme=scheme)
    paper = rgb(page, "body", "backgroundColor")
    assert (sum(paper) < 384) == (scheme == "dark")
    assert contrast(rgb(page, "body", "color"), paper) >= 7
    panel = rgb(page, ".advice li", "backgroundColor")
    for selector in (".advice p", ".figures dt", ".advice h3"):
        assert contrast(rgb(page, selector, "color"), panel) >= 4.5
    for selector in ("figcaption", ".readout", "footer", "caption"):
        assert contrast(rgb(page, selector, "color"), paper) >= 4.5


def test_print(open_page, page_file):
    """On white paper whatever the screen is, with what is folded up, without what needs a pointer."""
    page = open_page(page_file, color_scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert sum(rgb(page, "body", "backgroundColor")) == 3 * 255
    assert sum(rgb(page, "body", "color")) < 200
    assert not page.locator(".as-table").first.is_visible()
    assert page.locator("#outliers .do").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert sum(rgb(page, "body", "backgroundColor")) < 384
    assert not page.locator("#outliers .do").first.is_visible()
    assert page.pdf(format="A4", print_background=True).startswith(b"%PDF")
    assert page.problems == []


@contextmanager
def served(path):
    server = ReportServer(FollowedReport(str(path), None), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_new_batch_appears_without_a_reload(open_page, tmp_path):
    path = tmp_path / "m.jsonl"
    with served(path) as server:
        page = open_page(server.address)
        page.evaluate("window.same = true")
        page.get_by_text("There is no line yet.").wait_for()
        path.write_bytes(text(*(numbered(SLOW_BROKER, number) for number in range(3))))
        page.locator("#latest tbody th", has_text="2").wait_for(timeout=_TIMEOUT_MS)
        assert page.locator("canvas").count() == len(CHARTS)
        took = page.locator("#latest thead th", has_text="took")
        took.locator("button").click()
        page.locator("#rate .as-table summary").click()
        page.locator("#latest tbody summary").first.click()
        page.locator("#latency .chart").focus()
        with open(path, "ab") as file:
            file.write(json.dumps(numbered(CODEC_BOUND, 3)).encode() + b"\n")
        page.locator("#latest tbody th", has_text="3").wait_for(timeout=_TIMEOUT_MS)
        # What the reader has done stays as it is.
        assert page.locator("#latest details[open]").count() == 1
        assert page.evaluate("window.same")
        assert took.get_attribute("aria-sort") == "descending"
        page.locator("#rate .as-table tbody tr").nth(3).wait_for()
        assert page.evaluate("document.activeElement.closest('figure')?.id") == "latency"
        assert page.locator("#state").inner_text() == "Goes on updating."
        assert (page.outside, page.problems) == ([], [])
    page.get_by_text("the command that serves this page has ended").wait_for(timeout=_TIMEOUT_MS)
    assert page.locator("canvas").count() == len(CHARTS)


MOST_BYTES = 5_000_000
BATCHES = 100_000
SLOW = 77_777


def test_a_hundred_thousand_batches(tmp_path, open_page):
    path = tmp_path / "m.log"
    with open(path, "wb") as file:
        for number in range(BATCHES):
            line = numbered(SLOW_BROKER if number == SLOW else HEALTHY, number)
            file.write(json.dumps(line).encode() + b"\n")
    page = render(collect(str(path), None))
    assert len(page.encode()) < MOST_BYTES
    report = tmp_path / "report.html"
    report.write_text(page, encoding="utf-8")
    shown = open_page(report)
    assert shown.locator("canvas").count() == 5
    first = shown.locator("#outliers li").first.inner_text()
    assert first.startswith(f"batch {SLOW}, ")
    assert "broker 2 is slow" in first
    assert shown.problems == []


def test_figures_under_the_pointer(open_page, page_file):
    page = open_page(page_file)
    chart = page.locator("#time .u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    # The middle of the 18th of 40 batches.
    page.mouse.move(box["x"] + box["width"] * 17.5 / 40, box["y"] + 20)
    names = page.locator("#time .u-series .u-label").all_inner_texts()
    shown = dict(zip(names, page.locator("#time .u-series .u-value").all_inner_texts()))
    assert shown["batch"] == "batch 17, 2023-11-14 22:13:37"
    assert float(shown["waiting for buffer memory"]) == pytest.approx(2.8, rel=0.01)
    # All charts show the same batch.
    other = page.locator("#latency .u-series").first.inner_text()
    assert "batch 17, " in other


def test_sorting(open_page, page_file):
    page = open_page(page_file)
    first = page.locator("#latest tbody tr").first.locator("th")
    assert first.inner_text() == "39"
    took = page.locator("#latest thead th", has_text="took")
    took.locator("button").focus()
    for way, most in (("descending", "17"), ("ascending", None), ("descending", "17")):
        page.keyboard.press("Enter")
        assert took.get_attribute("aria-sort") == way
        assert (first.inner_text() == "17") == (most == "17")
    words = page.locator("#latest thead th", has_text="most of it")
    words.locator("button").click()
    assert words.get_attribute("aria-sort") == "ascending"
    assert took.get_attribute("aria-sort") == "none"
    # By number, not by digits.
    page.locator("#latest thead th", has_text="batch").locator("button").click()
    numbers = [int(n) for n in page.locator("#latest tbody th").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
