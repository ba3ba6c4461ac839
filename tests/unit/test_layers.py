"""Import rules: each layer knows only those before it, and the driver loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "spark_kafka_sink"

EVERYWHERE = {"model", "errors", "clock", "backoff", "worker", "__init__"}
"""Names everybody may use; they import nothing of the package but each other."""

ALLOWED: dict[str, set[str]] = {
    "hooks": set(),
    "config": {"hooks"},
    "protocol": set(),
    "network": {"protocol"},
    "columns": {"config", "record.record_batch", "record.views"},
    "record": {"protocol.types"},
    "admin": {"config", "network", "protocol"},
    "topics": {"admin", "config", "protocol"},
    "producer": {"columns", "record", "protocol", "config", "network", "admin", "topics", "hooks"},
    "transactions": {"admin", "config", "hooks", "record", "protocol"},
    "commit": {"producer.metrics", "transactions.model"},
    "task": {"columns", "config", "hooks", "commit", "producer", "record", "transactions"},
    "writer": {"columns", "config", "commit", "task", "transactions"},
    "preflight": {"admin", "topics", "config", "protocol", "commit"},
    "source": {"columns", "config", "preflight", "transactions", "writer"},
    "localkafka": {"admin", "network", "protocol"},
    "jobs": {"config"},
    "transactions_cli": {"admin", "transactions"},
    "cli": {"localkafka", "transactions_cli"},
    "__main__": {"cli"},
}
"""Layer -> the layers (or modules) it may import, besides itself and ``EVERYWHERE``."""

ONLY_IN: dict[str, set[str]] = {
    "pyspark": {"source", "writer", "commit", "columns.input_schema", "jobs"},
    "time": {"clock"},
    "socket": {"network.transport", "localkafka"},
    "ssl": {"network.transport"},
    "selectors": {"network.transport"},
    "asyncio": set(),
    "threading": {"producer.monitor", "producer.producer", "jobs", "localkafka.keeper_client"},
    "random": {"producer.producer", "admin", "localkafka"},
    "numba": {"record.kernels"},
    "llvmlite": {"record.kernels"},
    "pyarrow": {
        "columns.record_columns",
        "columns.digest",
        "producer.partitioner",
        "task",
        "writer",
    },
    "numpy": {"record.kernels", "columns.record_columns", "columns.digest", "producer"},
}
"""Module of others -> the only places that may import it."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / PACKAGE).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[str]:
    """All that a module imports, in functions and for type checking too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module
            if node.module == PACKAGE:
                yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)


def is_within(module: str, places: set[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def violations(module: str, tree: ast.AST) -> Iterator[str]:
    layer = module.split(".")[0]
    for imported in imports(tree):
        if imported == PACKAGE or imported.startswith(f"{PACKAGE}.__version__"):
            continue
        if imported.startswith(f"{PACKAGE}."):
            inner = imported.removeprefix(f"{PACKAGE}.")
            allowed = EVERYWHERE | (set() if layer in EVERYWHERE else {layer} | ALLOWED[layer])
            if not is_within(inner, allowed):
                yield f"{module} imports {imported}"
        else:
            places = ONLY_IN.get(imported.split(".")[0])
            if places is not None and not is_within(module, places):
                yield f"{module} imports {imported}"


def test_each_layer_imports_only_those_before_it():
    broken = [rule for module, tree in modules() for rule in violations(module, tree)]
    assert broken == []


def test_every_module_has_a_layer():
    layers = {module.split(".")[0] for module, _ in modules()}
    assert layers - EVERYWHERE == ALLOWED.keys()


def test_layers_have_an_order():
    """No two layers know each other, by any way round."""
    remaining = {layer: {a.split(".")[0] for a in allowed} for layer, allowed in ALLOWED.items()}
    # commit.py knows the counters' type; the producer knows nothing of commits.
    while remaining:
        free = {layer for layer, allowed in remaining.items() if not allowed & remaining.keys()}
        assert free, f"these know each other: {sorted(remaining)}"
        remaining = {layer: a for layer, a in remaining.items() if layer not in free}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("protocol.types", "from spark_kafka_sink.network import client"),
        ("protocol.api", "import spark_kafka_sink.producer.sender"),
        ("record.record_batch", "from spark_kafka_sink.protocol.messages import produce"),
        ("model", "from spark_kafka_sink.config import bootstrap"),
        ("producer.sender", "import time"),
        ("producer.sender", "def f():\n    from time import sleep"),
        ("network.client", "import socket"),
        ("producer.accumulator", "from threading import Lock"),
        ("config.config_def", "from pyspark.sql import types"),
        ("record.record_batch", "import numba"),
        ("commit", "from spark_kafka_sink.producer.producer import ThreadedProducer"),
        ("jobs.records", "from spark_kafka_sink import localkafka"),
    ],
)
def test_the_rules_have_teeth(module, line):
    assert list(violations(module, ast.parse(line)))


LOADED = """
import sys
{setup}
print(*sorted({{name.split(".")[0] for name in sys.modules}}))
"""


def loaded_by(setup: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(setup=setup)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return set(done.stdout.split())


def test_what_spark_looks_up_loads_next_to_nothing():
    """Spark imports every ``pyspark_*`` module of the path to find data sources."""
    loaded = loaded_by("import pyspark.sql.datasource; before = set(sys.modules)\n"
                       "import pyspark_kafka_sink\n"
                       "for name in before: sys.modules.pop(name, None)")  # fmt: skip
    assert not loaded & {"numba", "llvmlite", "pyarrow", "numpy", "socket", "selectors"}


def test_the_writer_that_the_driver_makes_loads_no_kernel():
    loaded = loaded_by("import spark_kafka_sink.source, spark_kafka_sink.writer\n"
                       "import spark_kafka_sink.preflight, spark_kafka_sink.columns.input_schema\n"
                       "import spark_kafka_sink.transactions.session")  # fmt: skip
    assert not loaded & {"numba", "llvmlite"}


def test_records_are_read_and_written_without_kernels():
    """The decision log is the driver's."""
    loaded = loaded_by("from spark_kafka_sink.record import record_reader, record_writer")
    assert not loaded & {"numba", "llvmlite", "numpy", "pyarrow"}


def test_the_command_line_needs_no_spark():
    assert not loaded_by("import spark_kafka_sink.cli") & {"pyspark", "numba", "numpy"}
