"""CONTRIBUTING.md names files and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Made by the commands themselves.
MADE = (".venv",)


def in_backticks() -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", TEXT))


def test_files_exist():
    named = {text for text in in_backticks() if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.md", text)}
    assert len(named) > 20
    missing = [name for name in named if not name.startswith(MADE) and not (ROOT / name).exists()]
    assert missing == []


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = {
        target for text in in_backticks() for target in re.findall(r"^make ([a-z0-9-]+)", text)
    }
    assert named <= targets
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets == set(phony[1].split())


def test_commands_of_workflows_exist():
    """``tests/publishing/test_workflows.py`` reads the workflow files as YAML."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    files = [
        *(ROOT / ".github" / "workflows").glob("*.yml"),
        ROOT / ".ci/run",
        ROOT / ".ci/release",
    ]
    lines = re.findall(
        r"^(?: *- run: |exec )?make (.+)$",
        "\n".join(path.read_text(encoding="utf-8") for path in files),
        re.MULTILINE,
    )
    called = {target for line in lines for target in line.split()}
    assert {"test", "wheel", "docs-site", "dist"} <= called
    assert called <= targets


def test_names_in_files_exist():
    """Tables and functions that a change has to find, beside the file in which they are."""
    for name, path in (
        ("REQUEST_TYPES", "tests/property/message_values.py"),
        ("_TABLE", "spark_kafka_sink/base/errors.py"),
        ("_ADVICE", "spark_kafka_sink/base/errors.py"),
        ("computed_partitions", "spark_kafka_sink/producer/partitioner.py"),
        ("_KEY_HASHES", "spark_kafka_sink/producer/partitioner.py"),
        ("PARTITIONERS", "spark_kafka_sink/config/producer_config.py"),
    ):
        assert path in TEXT
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(def )?{name}\b", source, re.MULTILINE), f"{path} has no {name}"
