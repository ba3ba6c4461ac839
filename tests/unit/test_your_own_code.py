"""The interceptor, the partitioner, the source of tokens and the names of subjects of docs/your-own-code.md, as they stand
there; and what is checked of what an interceptor returns.
"""

import pickle
import re
import sys
import time
import types
from pathlib import Path

import packaging.requirements
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_kafka_sink.base.entry_points import Hook, HookError, RefusedRowsError, refused_rows, run
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.security_config import OAuthConfig
from spark_kafka_sink.producer.partitioner import UserPartitioner
from spark_kafka_sink.record.columns import arrow_records
from spark_kafka_sink.registry.schemas import user_defined_subject
from spark_kafka_sink.security.oauth import OPTION, provided_token
from spark_kafka_sink.spark.task import Interceptors
from tests.tables import each_row

ROOT = Path(__file__).parents[2]
_MODULE = re.compile(r"```python\n# (\w+)\.py\n(.*?)```", re.DOTALL)
_OPTION = re.compile(
    r'\.option\("(interceptors|kafka\.[\w.]+|value\.subject[\w.]+)", "([\w.]+:\w+)"\)'
)


@pytest.fixture(autouse=True)
def documented(monkeypatch):
    """The documented modules, importable."""
    text = (ROOT / "docs" / "your-own-code.md").read_text(encoding="utf-8")
    for name, code in _MODULE.findall(text):
        module = types.ModuleType(name)
        exec(compile(code, f"{name}.py", "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    return text


def entry_point(text, option):
    return next(value for name, value in _OPTION.findall(text) if name == option)


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def intercepted(on_send, arrow_batch):
    interceptor = type("Interceptor", (), {"on_send": staticmethod(on_send)})
    module = types.ModuleType("intercepting")
    module.Interceptor = interceptor
    sys.modules["intercepting"] = module
    try:
        return Interceptors(["intercepting:Interceptor"]).on_send(arrow_batch)
    finally:
        del sys.modules["intercepting"]


# --- as documented --------------------------------------------------------------------------------


def test_the_documented_interceptor(documented):
    interceptors = Interceptors([entry_point(documented, "interceptors")])
    written = interceptors.on_send(batch(key=["k"], value=["from a.b@example.org to you"]))
    assert written.column(1).to_pylist() == ["from *** to you"]
    interceptors.on_acknowledgement(lambda: {"records": 1})


def test_the_documented_partitioner(documented):
    partitioner = UserPartitioner(entry_point(documented, "kafka.partitioner"))
    rows = batch(key=["us-1", "eu-2", "ap-3", "zz-4", None], value=[b"v"] * 5)
    records = arrow_records(rows, ColumnPositions(value=1, key=0, topic_option="t"), 0)
    computed = partitioner.compute("t", records, None, [0, 1], 2)
    assert computed is not None
    assert computed.tolist()[:3] == [1, 0, 0]
    assert set(computed.tolist()[3:]) == {-1}


def test_the_documented_source_of_tokens(documented, monkeypatch, tmp_path):
    service = tmp_path / "service.json"
    service.write_text('{"token": "a-token", "expires_in_seconds": 3600}')
    monkeypatch.setenv("TOKEN_SERVICE", service.as_uri())
    before_ms = time.time() * 1000
    token = provided_token(entry_point(documented, OPTION), OAuthConfig())
    assert token.value.reveal() == "a-token"
    assert token.expires_at_ms >= int(before_ms) + 3_600_000


# --- what an interceptor may return ---------------------------------------------------------------

HEADERS = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary(), False)]),
        False,
    )
)


def test_what_may_be_null_does_not_matter():
    """pyarrow's own functions return nullable columns; Spark's literals are not."""
    schema = pa.schema([pa.field("value", pa.string(), False), pa.field("headers", HEADERS, False)])
    headers = pa.array([[{"key": "k", "value": b"v"}]], HEADERS)
    rows = pa.RecordBatch.from_arrays([pa.array(["v"]), headers], schema=schema)

    def upper(arrow_batch):
        changed = arrow_batch.set_column(0, "value", pc.utf8_upper(arrow_batch.column(0)))
        nullable = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        return changed.set_column(1, "headers", arrow_batch.column(1).cast(nullable))

    written = intercepted(upper, rows)
    assert written.column(0).to_pylist() == ["V"]
    arrow_records(written, ColumnPositions(value=0, headers=1, topic_option="t"), 0)


def test_what_may_be_null_in_a_large_list_does_not_matter_either():
    """Spark sends these where spark.sql.execution.arrow.useLargeVarTypes is set."""

    def large(is_nullable):
        header = [pa.field("key", pa.string(), False), pa.field("value", pa.binary(), False)]
        return pa.large_list(pa.field("element", pa.struct(header), is_nullable))

    rows = pa.RecordBatch.from_arrays([pa.array([[]], large(False))], ["headers"])
    written = intercepted(lambda _: rows.cast(pa.schema([("headers", large(True))])), rows)
    assert written.column(0).type == large(True)


def test_what_may_be_null_in_a_map_does_not_matter_either():
    def of(is_nullable):
        inner = pa.struct([pa.field("a", pa.int32(), is_nullable)])
        return pa.map_(pa.string(), pa.field("value", inner, is_nullable))

    rows = pa.RecordBatch.from_arrays([pa.array([[("k", {"a": 1})]], of(False))], ["h"])
    nullable = pa.RecordBatch.from_arrays([pa.array([[("k", None)]], of(True))], ["h"])
    assert intercepted(lambda _: nullable, rows).column(0).to_pylist() == [[("k", None)]]
    other = pa.RecordBatch.from_arrays([pa.array([[]], pa.map_(pa.string(), pa.int32()))], ["h"])
    with pytest.raises(HookError, match="changed the type of column .h."):
        intercepted(lambda _: other, rows)


VIEWS = [kind for kind in ("string_view", "binary_view") if hasattr(pa, kind)]  # pyarrow 16
OTHER_ARRAYS = [
    pa.array(["v"]).dictionary_encode(),
    *(pa.array([b"v"], getattr(pa, view)()) for view in VIEWS),
    pa.array([b"v"]),
    pa.RunEndEncodedArray.from_arrays([1], pa.array(["v"])),
]


@each_row(
    ("returned", "message"),
    [
        (None, "it returned None, not a pyarrow.RecordBatch"),
        ([b"v"], "it returned list, not a pyarrow.RecordBatch"),
        (pa.table({"key": ["k"], "value": ["v"]}), "it returned pyarrow.Table, not a"),
        (batch(value=["v"]), "it changed the columns from ['key', 'value'] to ['value']"),
        (batch(value=["v"], key=["k"]), "the columns from ['key', 'value'] to ['value', 'key']"),
        *[
            (
                batch(key=["k"], value=array),
                f"it changed the type of column 'value' from string to {array.type}: cast the ",
            )
            for array in OTHER_ARRAYS
        ],
    ],
    ids=str,
)
def test_what_an_interceptor_must_not_return(returned, message):
    with pytest.raises(HookError) as raised:
        intercepted(lambda _: returned, batch(key=["k"], value=["v"]))
    assert message in str(raised.value.__cause__)


def test_documented_names_of_subjects(documented):
    function = entry_point(documented, "value.subject.name.strategy")
    assert (
        user_defined_subject(function, "value", "orders", "acme.Order")
        == "payments.acme.Order.value"
    )
    assert user_defined_subject(function, "key", "orders", None) == "payments.orders.key"


# --- what a user reads of code that fails, and of rows that it refuses ----------------------------


@pytest.mark.parametrize(
    ("raising", "where"),
    [
        ("helper_of_hook.fail()", "helper_of_hook.py, line 2, in fail"),
        ("json.loads('')", "hook_1.py, line 3, in <module>"),
    ],
)
def test_an_error_in_a_module_of_the_user_names_the_innermost_line_of_their_own(
    tmp_path, monkeypatch, raising, where
):
    (tmp_path / "helper_of_hook.py").write_text("def fail():\n    raise NameError('x')\n")
    module = f"hook_{int('json' in raising)}"
    (tmp_path / f"{module}.py").write_text(f"import json\nimport helper_of_hook\n{raising}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="HOOK-003") as raised:
        Interceptors([f"{module}:X"])
    assert f" (file {tmp_path}/{where})" in str(raised.value)


def test_an_error_in_an_installed_hook_names_its_outermost_line():
    hook = Hook("the installed hook", packaging.requirements.Requirement)
    with pytest.raises(HookError, match=r"requirements\.py, line \d+, in __init__\) .*HOOK-001"):
        run(hook, lambda result: result, "no requirement =")


def test_rows_that_a_hook_refuses():
    error = pickle.loads(pickle.dumps(RefusedRowsError({4: "x", 0: "y"})))
    assert str(error) == "2 row(s) refused: row 4: x; row 0: y [PKS-ROW-008]"
    many = str(RefusedRowsError(dict.fromkeys(range(1000), "bad")))
    assert many == "1000 row(s) refused: row 0: bad; row 1: bad; row 2: bad [PKS-ROW-008]"
    hook = Hook("partitioner 'a:b'", print)
    assert [*refused_rows(hook, error, 5)] == [0, 4]
    for rows, wrong in (
        ({}, "no row"),
        ({1: "x", 5: "y"}, "row 5; there are 5"),
        ({-1: "x"}, "-1"),
    ):
        with pytest.raises(HookError, match=wrong):
            refused_rows(hook, RefusedRowsError(rows), 5)
