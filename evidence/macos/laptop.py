"""The sink on a laptop with macOS, in ten minutes, and a report to send.

python3 -m evidence macos          # in a checkout, or in an unpacked sdist

Needs Python 3.10 or newer, Java 17, and in a checkout Xcode's command line tools; all else goes into
.venv-macos. It changes nothing outside of the folder but the sink's cache (`pykafka-sink cache`). The
report has no secrets; the home folder in its paths becomes ~.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from evidence.harness.planning import parser_of, show
from tests.kernels.aarch64 import TESTS

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-macos"
PYTHON = ENVIRONMENT / "bin" / "python"
REPORT = ROOT / "macos-report.txt"
LIBRARIES = ROOT / "spark_kafka_sink" / "record" / "compiled"
_PACKAGES = ("--editable", ".[demo,cli,protobuf]", "pytest>=8", "pytest-timeout", "hypothesis")
_OF_TESTS = ("cramjam", "fastavro", "jsonschema", "psutil")
_PYTEST = ("-m", "pytest", "-q", "-o", "addopts=", "-m", "not long")
_LINES_OF_A_FAILURE = 40

_LOAD = """\
from spark_kafka_sink.record.compiled.calls import load_kernels
from spark_kafka_sink.record.compiled.library import platform_name
load_kernels()
print(platform_name())
"""
_OUT_OF_A_ZIP_FILE = """\
import sys
sys.path.insert(0, "build/macos.zip")
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.record.compiled.library import check_platform
try:
    check_platform()
    print("loaded")
except ConfigError as error:
    print(error)
    assert "install the wheel" in str(error)
"""
_TUTORIAL = """\
import contextlib, io
from tests.snippets import blocks
page, printed = "docs/getting-started.md", io.StringIO()
code = "\\n".join(block.text for block in blocks(page, "python"))
with contextlib.redirect_stdout(printed):
    exec(code, {"__name__": "__main__"})
shown = [line for block in blocks(page, "text") for line in block.text.splitlines()]
lines = [line for line in printed.getvalue().splitlines() if line]
assert lines == shown, "\\n".join(lines)
print("as the page shows")
"""


class Step(NamedTuple):
    """A command, and the words that it may need: an interpreter's, unless a program is named."""

    title: str
    words: Sequence[str]
    program: str = ""


STEPS = (
    Step("an environment", ("-m", "venv", str(ENVIRONMENT)), sys.executable),
    Step("packages", ("-m", "pip", "install", "--quiet", *_PACKAGES, *_OF_TESTS)),
    Step("the kernels are loaded", ("-c", _LOAD)),
    Step("they do what they must", (*_PYTEST, *TESTS)),
    Step(
        "sockets and TLS",
        (*_PYTEST, "tests/unit/test_sockets.py", "tests/unit/test_tls_channel.py"),
    ),
    Step("a zip file", ("-m", "spark_kafka_sink", "package", "--output", "build/macos.zip")),
    Step("out of it they are refused", ("-c", _OUT_OF_A_ZIP_FILE)),
    Step(
        "a real Kafka leaves nothing",
        (*_PYTEST, "tests/broker/test_localkafka.py::TestNothingStays"),
    ),
    Step("the quickstart", ("examples/quickstart.py",)),
    Step("the tutorial", ("-c", _TUTORIAL)),
    Step("the demo", ("jobs/demo.py",)),
)


def run(step: Step) -> tuple[bool, str]:
    """Whether the step succeeded, and what it printed."""
    done = subprocess.run(
        [step.program or str(PYTHON), *step.words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout


def said(*command: str) -> str:
    """What a program of the machine says; nothing if there is none."""
    if shutil.which(command[0]) is None:
        return f"there is no {command[0]}"
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout.strip()


def machine() -> Iterator[str]:
    """Lines about this machine, and the libraries that were there before this run."""
    yield f"macOS {platform.mac_ver()[0] or '(none)'}, {platform.platform()}, {platform.machine()}"
    yield f"Python {sys.version} at {sys.executable}"
    yield from said("java", "-version").splitlines()
    yield from said("git", "-C", str(ROOT), "log", "-1", "--format=commit %H").splitlines()[:1]
    for path in sorted(LIBRARIES.glob("kernels-darwin-*.so")):
        yield f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
        yield from said("codesign", "--verify", "--verbose=2", str(path)).splitlines()


def main(words: Sequence[str]) -> int:
    """Run all steps; 1 if one of them fails."""
    arguments = parser_of(__doc__ or "").parse_args(words)
    if arguments.plan:
        return show(step.title for step in STEPS)
    lines, failed = list(machine()), 0
    (ROOT / "build").mkdir(exist_ok=True)
    for step in STEPS:
        print(step.title, "…", flush=True)
        started = time.monotonic()
        is_right, output = run(step)
        failed += not is_right
        last = output.strip().splitlines()[-(1 if is_right else _LINES_OF_A_FAILURE) :]
        lines.append(
            f"{'ok' if is_right else 'FAILED'}: {step.title}, {time.monotonic() - started:.0f} s"
        )
        lines += [f"    {line}" for line in last]
    text = "\n".join(lines).replace(str(Path.home()), "~") + "\n"
    REPORT.write_text(text, encoding="utf-8")
    print(f"\n{text}\nPaste {REPORT.name} into an issue, whole.")
    return 1 if failed else 0
