"""Import rules: each layer knows only those before it, and the driver loads nothing heavy."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import each_row

ROOT = Path(__file__).parents[2]
PACKAGE = "spark_kafka_sink"

ALLOWED = {
    "__init__": {"jobs.streams", "metrics", "spark.frames", "spark.pythons"},
    "base": set(),
    "config": set(),
    "protocol": set(),
    "security": {"config", "protocol"},
    "network": {"config", "protocol", "security"},
    "record": {"protocol.types"},
    "formats": {"config.formats", "record.columns", "record.compiled", "record.dead_letters"},
    "registry": {"config", "formats.avro_schema", "formats.plan", "security"},
    "producer": {"record", "protocol", "config", "network", "security"},
    "metrics": {"config", "producer.metrics", "security.references"},
    "transactions": {"config", "network", "record", "protocol"},
    "spark": {
        *("config", "formats", "metrics", "network", "producer", "protocol", "record"),
        *("registry", "security.references", "transactions"),
    },
    "localkafka": {"network", "protocol"},
    "jobs": {"config", "metrics"},
    "tools": {
        *("config", "localkafka", "metrics", "network", "producer", "protocol", "record"),
        *("registry", "security", "transactions"),
        *(
            "formats.json_schema",
            "formats.plan",
            "formats.times",
            "jobs.progress",
            "jobs.settings",
        ),
    },
    "__main__": {"tools"},
}
"""Room -> the rooms (or modules) it may import, besides itself, ``base`` and the version."""

ALLOWED_IN_SPARK = {
    "spark.versions": set(),
    "spark.worker": {"config.sink_options"},
    "spark.daemon": {"spark.task"},
    "spark.row_planning": {
        *("config", "formats", "spark.versions"),
    },
    "spark.commit": {
        "config.sink_keys",
        "metrics",
        "producer.metrics",
        "spark.versions",
        "spark.worker",
        "transactions.model",
    },
    "spark.preflight": {
        *("config", "metrics.outputs", "network", "protocol", "security.security"),
        *("spark.topics", "spark.worker"),
    },
    "spark.topics": {"config", "network", "protocol"},
    "spark.dead_letters": {"config", "producer", "record", "spark.commit"},
    "spark.pythons": {"config.sink_options"},
    "spark.planning": {"config", "security.security", "spark", "transactions"},
    "spark.source": {"config", "spark"},
    "spark.schemas": {
        *("config", "formats", "registry", "spark.row_planning"),
    },
    "spark.guard": {
        *("config.sink_options", "spark.worker", "spark.writer", "transactions"),
    },
    "spark.writer": {
        *("config", "formats.plan", "metrics.lineage", "spark", "transactions"),
    },
    "spark.frames": {
        *("config", "formats.plan", "record.compiled.library", "spark"),
        "transactions",
    },
    "spark.task": {
        *("config", "formats", "producer", "record", "security.references", "spark"),
        "transactions",
    },
}
"""Modules of the room ``spark``: what the driver loads knows little, ``task`` knows both sides."""

_REPORT = {
    *("tools.report_advice", "tools.report_lines", "tools.report_page"),
    "tools.terminal",
}
ALLOWED_IN_TOOLS = {module: {"metrics", *_REPORT} for module in _REPORT}
"""Modules of the room ``tools`` that know lines of metrics, and nothing else."""

ONLY_IN = {
    "pyspark": {"spark", "jobs", "metrics"},
    "prometheus_client": {"metrics"},
    "opentelemetry": {"metrics.otlp"},
    "google": {"formats.protobuf_layout", "formats.protobuf_text", "metrics.otlp"},
    "openlineage": {"metrics.lineage"},
    "requests": {"metrics.otlp"},
    "time": {"base.clock", "record.kernels"},
    "socket": {
        "base.http",
        "network.channels",
        "network.tls",
        "network.transport",
        "spark.daemon",
        "spark.guard",
        "localkafka",
    },
    "ssl": {"base.http", "network.tls", "registry.client", "security", "metrics"},
    "cryptography": {"security", "localkafka"},
    "selectors": {"network.transport"},
    "asyncio": set(),
    "threading": {
        "base.http",
        "network.transport",
        "producer.monitor",
        "security",
        "producer.producer",
        "transactions.session",
        "jobs",
        "localkafka.jars",
        "localkafka.processes",
        "spark.frames",
        "spark.guard",
        "spark.topics",
        "metrics.background",
        "metrics.lineage",
        "metrics.prometheus",
        "metrics.otlp",
        "tools.report_page",
        "tools.terminal",
    },
    "random": {"producer.producer", "network.admin", "localkafka", "security.security"},
    "numba": {"record.kernels.compiler"},
    "llvmlite": {"record.kernels.compiler"},
    "pyarrow": {
        "tools.check_cluster",
        "metrics.outputs",
        "record.columns",
        "record.compression",
        "record.dead_letters",
        "formats",
        "producer.partitioner",
        "spark.frames",
        "spark.commit",
        "spark.task",
        "spark.writer",
    },
    "numpy": {
        "record",
        "formats",
        "producer",
        "spark.dead_letters",
        "tools.report_lines",
        "tools.report_page",
    },
}
"""Module of others -> the only places that may import it."""


@functools.cache
def modules():
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found.items()


def statements(tree):
    """All statements, however deep; no expressions, which are most of a tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                waiting += inner


def imports(tree):
    """All that a module imports, in functions and for type checking too."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module
            if node.module == PACKAGE:
                yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)


def is_within(module, places):
    return any(module == place or module.startswith(f"{place}.") for place in places)


def violations(module, tree):
    layer = module.split(".")[0]
    for imported in imports(tree):
        if imported == PACKAGE or imported.startswith(f"{PACKAGE}.__version__"):
            continue
        if imported.startswith(f"{PACKAGE}."):
            inner = imported.removeprefix(f"{PACKAGE}.")
            known = {**ALLOWED_IN_SPARK, **ALLOWED_IN_TOOLS}.get(module, {layer} | ALLOWED[layer])
            allowed = {"base", "__init__"} | known
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
    assert layers == ALLOWED.keys()


def test_every_module_of_the_spark_room_has_its_rule():
    modules_of_spark = {module for module, _ in modules() if module.startswith("spark.")}
    assert modules_of_spark == ALLOWED_IN_SPARK.keys()


def test_layers_have_an_order():
    """No two layers know each other, by any way round."""
    remaining = {layer: {a.split(".")[0] for a in allowed} for layer, allowed in ALLOWED.items()}
    while remaining:
        free = {layer for layer, allowed in remaining.items() if not allowed & remaining.keys()}
        assert free, f"these know each other: {sorted(remaining)}"
        remaining = {layer: a for layer, a in remaining.items() if layer not in free}


@each_row(
    ("module", "line"),
    [
        ("protocol.types", "from spark_kafka_sink.network import client"),
        ("protocol.api", "import spark_kafka_sink.producer.sender"),
        ("record.record_batch", "from spark_kafka_sink.protocol.messages import topics"),
        ("base.model", "from spark_kafka_sink.config import bootstrap"),
        ("producer.sender", "import time"),
        ("producer.sender", "def f():\n    from time import sleep"),
        ("network.client", "import socket"),
        ("producer.accumulator", "from threading import Lock"),
        ("config.config_def", "from pyspark.sql import types"),
        ("record.record_batch", "import numba"),
        ("spark.commit", "from spark_kafka_sink.producer.producer import ThreadedProducer"),
        ("jobs.records", "from spark_kafka_sink import localkafka"),
    ],
)
def test_a_forbidden_import_is_found(module, line):
    assert list(violations(module, ast.parse(line)))


LOADED = """
import sys
{setup}
print(*sorted({{name.split(".")[0] for name in sys.modules}}))
"""


def loaded_by(setup):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


KERNELS = {"numba", "llvmlite"}
ARRAYS = {"numpy", "pyarrow"}


@pytest.mark.parametrize(
    ("setup", "unloaded"),
    [
        # Spark imports every ``pyspark_*`` module of the path to find data sources.
        (
            "import pyspark.sql.datasource; before = set(sys.modules)\n"
            "import pyspark_kafka_sink\n"
            "for name in before: sys.modules.pop(name, None)",
            {*KERNELS, *ARRAYS, "socket", "selectors"},
        ),
        # What the driver makes of a write.
        (
            "import spark_kafka_sink.spark.source, spark_kafka_sink.spark.writer\n"
            "import spark_kafka_sink.spark.preflight, spark_kafka_sink.spark.row_planning\n"
            "import spark_kafka_sink.transactions.session, spark_kafka_sink.spark.frames\n"
            "import sys; assert 'spark_kafka_sink.metrics.lineage' not in sys.modules",
            {*KERNELS, "prometheus_client", "opentelemetry"},
        ),
        # The decision log is the driver's.
        ("from spark_kafka_sink.record import record_batch", {*KERNELS, *ARRAYS}),
        # A write in plaintext must not pay for TLS and token endpoints.
        (
            "from spark_kafka_sink.config.sink_options import SinkOptions\n"
            "SinkOptions.parse({'kafka.bootstrap.servers': 'b:9092'})",
            {"ssl", "_ssl", "cryptography", "urllib", "http", "socket"},
        ),
        # Certificates and keys in PEM.
        (
            "from spark_kafka_sink.config.security_config import SslConfig\n"
            "from spark_kafka_sink.security.tls import TlsContext\n"
            "TlsContext(SslConfig()).context()",
            {*ARRAYS, "cryptography", "pyspark"},
        ),
        # Tokens; only a signed assertion needs the package cryptography.
        (
            "import spark_kafka_sink.security.oauth, spark_kafka_sink.security.aws",
            {*ARRAYS, "cryptography", "pyspark"},
        ),
        (
            "from spark_kafka_sink.__main__ import main\n"
            "try: main(['broker', '--help'])\n"
            "except SystemExit: pass",
            {*KERNELS, *ARRAYS, "pyspark"},
        ),
        ("import spark_kafka_sink.localkafka", {*KERNELS, *ARRAYS, "pyspark"}),
    ],
)
def test_what_is_not_needed_is_not_loaded(setup, unloaded):
    assert not loaded_by(setup) & unloaded


def test_a_task_in_clear_text_loads_no_module_of_tls_and_logins():
    prefix = "spark_kafka_sink.security."
    kept = f"sys.modules = [n.removeprefix('{prefix}') for n in sys.modules if '{prefix}' in n]"
    loaded = loaded_by(f"import spark_kafka_sink.spark.task\n{kept}")
    assert loaded == {"references", "security"}
