"""What users read: options are named as users write them, ``kafka.linger.ms`` and not ``linger.ms``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from tests.tables import each_row

PACKAGE = Path(spark_kafka_sink.__file__).parent
DOCS = PACKAGE.parent / "docs"
FOR_USERS = ("delivery", "exactly-once", "operating-transactions", "options", "reliability")
FOR_USERS += (
    "choosing",
    "columns",
    "errors",
    "exactly-once-protocol",
    "getting-started",
    "known-issues",
)
FOR_USERS += ("policies", "scale", "spark-versions", "troubleshooting", "tuning", "your-own-code")

# Without those that are words, such as retries.
NAMES = sorted((key.name for key in PRODUCER_CONFIG.keys.values() if "." in key.name), key=len)
WITHOUT_PREFIX = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(map(re.escape, reversed(NAMES)))}|acks=\w+)(?![\w-]|\.\w)"
)
OF_BROKERS = re.compile(r"`[a-z.]+` of the brokers")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """String literals and their lines, those that only document the code left out."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.lineno, node.value


def unprefixed(text: str) -> list[str]:
    """Options that ``text`` names in a sentence; a name alone is a key of a table."""
    return [] if text in NAMES else WITHOUT_PREFIX.findall(OF_BROKERS.sub("", text))


def test_what_is_found() -> None:
    found = unprefixed("raise linger.ms and max.block.ms. It needs acks=all, not kafka.acks=1.")
    assert found == ["linger.ms", "max.block.ms", "acks=all"]
    assert unprefixed("linger.ms") == unprefixed("`request.timeout.ms` of the brokers") == []


@pytest.mark.slow
def test_messages_name_options_as_users_write_them() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts(path.read_text(encoding="utf-8"))
        for name in unprefixed(text)
    ]
    assert found == []


@each_row("document", FOR_USERS)
def test_documents_name_options_as_users_write_them(document: str) -> None:
    lines = (DOCS / f"{document}.md").read_text(encoding="utf-8").splitlines()
    found = [f"{n}: {name}" for n, line in enumerate(lines, 1) for name in unprefixed(line)]
    assert found == []
