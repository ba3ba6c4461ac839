"""Errors and warnings carry a code; docs/errors.md and ``pykafka-sink explain`` come from one table."""

import ast
import copy
import functools
import logging
import pickle
import re
from pathlib import Path

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import (
    BrokerError,
    ConfigError,
    KafkaSinkError,
    ProtocolError,
    TopicError,
    code_of,
    coded,
    error_named,
    joined,
    sentence,
    warn,
)
from spark_kafka_sink.tools.shipped import AREAS, read_areas
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "spark_kafka_sink"
STORED = Path(__file__).with_name("data") / "error_codes.txt"

BASE = (f"{PACKAGE}.base.errors", "KafkaSinkError")
CLASSES_WITHOUT = {"ProtocolError", "LocalProtocolError"}
"""Errors of the sink's own making: no user can act on them."""
LEVELS = ("warning", "error", "exception", "critical", "log")
_CODE = re.compile(r"([A-Z]+)-\d{3}")

Name = tuple[str, str]
"""Module and name of a class."""


@functools.cache
def trees():
    """Return the tree of each module that may raise a public error, by the module's name."""
    return dict(_sources())


def _sources():
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "jobs").glob("*.py")):
        yield f"{PACKAGE}.jobs.{path.stem}", ast.parse(path.read_text(encoding="utf-8"))
    path = ROOT / "pyspark_kafka_sink.py"
    yield path.stem, ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(tree):
    """Those of a tree, of the kinds that are asked for here."""
    kinds = (ast.arg, ast.Call, ast.Constant, ast.ImportFrom)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


@functools.cache
def names_in(module, tree):
    """Return where the names of classes in a module come from."""
    found = {}
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: (node.module, one.name) for one in node.names}
    for node in nodes(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Subscript):
            given = re.fullmatch(r"type\[(\w+)\]", ast.unparse(node.annotation))
            if given and given[1] in found:
                found[node.arg] = found[given[1]]
    return found | {n.name: (module, n.name) for n in tree.body if isinstance(n, ast.ClassDef)}


def families(modules):
    """Return the classes of public errors, and those of them with a code of their own."""
    bases, own = {}, set()
    for module, tree in modules.items():
        names = names_in(module, tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases[module, node.name] = {
                    names[base.id]
                    for base in node.bases
                    if isinstance(base, ast.Name) and base.id in names
                }
                fields = {ast.unparse(s.targets[0]) for s in node.body if isinstance(s, ast.Assign)}
                if "code" in fields:
                    own.add((module, node.name))

    def descends(name, roots):
        return name in roots or any(descends(base, roots) for base in bases.get(name, ()))

    public = {name for name in bases if descends(name, {BASE})}
    return public, {name for name in public if descends(name, own)}


def without_code(module, tree, public, own):
    """Yield the errors that are made, and the warnings that are logged, without a code."""
    names = names_in(module, tree)
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        called = names.get(node.func.id) if isinstance(node.func, ast.Name) else None
        has_code = any(keyword.arg == "code" for keyword in node.keywords)
        if called in public - own and called[1] not in CLASSES_WITHOUT and not has_code:
            yield f"{module}:{node.lineno}: {called[1]} without code="
        if isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            logger = ast.unparse(node.func.value)
            is_log = logger.rpartition(".")[2].strip("_").lower() in ("log", "logger")
            if is_log and not is_below_warning(node) and "coded(" not in ast.unparse(node):
                yield f"{module}:{node.lineno}: {logger}.{node.func.attr}, not codes.warn"


def is_below_warning(call):
    level = ast.unparse(call.args[0]) if call.args else ""
    return ast.unparse(call.func).endswith(".log") and level in ("logging.INFO", "logging.DEBUG")


def used_codes():
    """All codes that the package's code names."""
    areas = {name.upper() for name in AREAS}
    return {
        node.value
        for tree in trees().values()
        for node in nodes(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (match := _CODE.fullmatch(node.value))
        and match[1] in areas
    }


def test_each_error_and_each_warning_has_a_code():
    public, own = families(trees())
    missing = [
        one for module, tree in trees().items() for one in without_code(module, tree, public, own)
    ]
    assert missing == []


@each_row(
    ("source", "count"),
    [
        ("raise ConfigError('x')", 1),
        ("raise ConfigError('x') from None", 1),
        ("def f(): return ConfigError('x')", 1),
        ("raise ConfigError('x', code='OPTION-001')", 0),
        ("class Own(ConfigError):\n  code = 'OPTION-001'\nraise Own('x')", 0),
        ("class Own(ConfigError): pass\nraise Own('x')", 1),
        ("def f(kind: type[ConfigError]):\n  raise kind('x')", 1),
        ("raise ValueError('x')", 0),
        ("logger.warning('x')", 1),
        ("self._log.error('x')", 1),
        ("_LOG.warning('x')", 1),
        ("logger.log(level, 'x')", 1),
        ("logger.log(logging.INFO, 'x')", 0),
        ("logger.log(level, coded('x', code))", 0),
        ("warn(logger, 'OPTION-001', 'x')", 0),
    ],
)
def test_what_is_found(source, count):
    tree = ast.parse(f"from {BASE[0]} import ConfigError\n{source}")
    public, own = families({BASE[0]: trees()[BASE[0]], "planted": tree})
    assert len([*without_code("planted", tree, public, own)]) == count


CAUSES = [cause for area in read_areas() for cause in area.causes]
WRITTEN = [cause for cause in CAUSES if not cause.code.startswith("BROKER-")]


def test_each_code_is_in_the_table_and_each_row_is_used():
    codes = [cause.code for cause in CAUSES]
    assert len(set(codes)) == len(codes)
    assert used_codes() - {BrokerError.code} == {cause.code for cause in WRITTEN}


def test_each_row_is_complete_and_in_its_area():
    for area in read_areas():
        numbers = [cause.code.partition("-") for cause in area.causes]
        assert {name for name, _, _ in numbers} <= {area.name}
        assert [number for _, _, number in numbers] == sorted(number for _, _, number in numbers)
    for cause in CAUSES:
        assert cause.messages, cause.code
        for text in (cause.cause, cause.fix, cause.verify):
            assert text.endswith("."), f"{cause.code}: {text}"
    assert len({cause.cause for cause in CAUSES}) == len(CAUSES), "no two codes have one cause"


def test_no_code_changes_its_meaning():
    """Codes are a contract: add lines for new ones; a line stays when the code is not used any more."""
    lines = STORED.read_text(encoding="utf-8").splitlines()
    stored = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    wrong = [f"{one.code} {one.cause}" for one in WRITTEN if stored.get(one.code) != one.cause]
    assert wrong == [], f"add to {STORED.relative_to(ROOT)}, or take the next free number"


def test_messages_are_word_for_word_those_of_the_code():
    texts = "\n".join(
        node.value
        for tree in trees().values()
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    missing = []
    for cause in WRITTEN:
        for message in cause.messages:
            parts = (part.strip(" .,:;(") for part in re.split(r"…|'|=", message))
            missing += [
                f"{cause.code}: {part}" for part in parts if len(part) >= 12 and part not in texts
            ]
    assert missing == []


def test_the_document_has_each_code_that_a_user_may_meet():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert all(f"\n### PKS-{cause.code}\n" in text for cause in WRITTEN)
    assert "\n### PKS-BROKER-029\n" in text
    assert "\n### PKS-BROKER-030\n" not in text, "no producer meets it"


@each_row(
    ("text", "code", "whole"),
    [
        ("no", "A-001", "no [PKS-A-001]"),
        ("no", "", "no"),
        ("no [PKS-A-001]", "A-001", "no [PKS-A-001]"),
        ("file: no [PKS-A-001]", "B-002", "file: no [PKS-A-001]"),
        ("no [PKS-A-001]. What was read stays", "B-002", "no. What was read stays [PKS-A-001]"),
        ("a (x [PKS-A-001]), b (y [PKS-A-001])", "B-002", "a (x), b (y) [PKS-A-001]"),
        ("a (x [PKS-A-001]), b (y [PKS-A-002])", "B-002", "a (x), b (y) [PKS-B-002]"),
        ("a (x [PKS-A-001]), b (y [PKS-A-002])", "", "a (x), b (y) [PKS-A-001]"),
        (joined(["a (x)", "b (x)"]), "A-001", "a (x), b (x) [PKS-A-001]"),
        (joined(["a (x [PKS-A-001])", "b (x)"]), "B-002", "a (x), b (x) [PKS-B-002]"),
        (joined(["a (x [PKS-A-001])", "b (x [PKS-A-001])"]), "B-002", "a (x), b (x) [PKS-A-001]"),
    ],
)
def test_a_text_has_one_code_at_its_end(text, code, whole):
    assert coded(text, code) == whole
    assert coded(whole, code) == whole
    assert code_of(whole) == whole.partition("[PKS-")[2].strip("]")
    assert sentence(whole) == sentence(text)
    assert "PKS" not in sentence(text)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no", code="OPTION-003"),
        KafkaSinkError("no"),
        TopicError("no", error_named("TOPIC_AUTHORIZATION_FAILED")),
        BrokerError(error_named("NOT_LEADER_OR_FOLLOWER"), "write to t-0", "sorry"),
    ],
    ids=repr,
)
def test_an_error_stays_itself_when_it_is_pickled_or_copied(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_an_error_says_its_code_and_keeps_that_of_the_cause():
    inner = ConfigError("no file", code="OPTION-013")
    assert (str(inner), inner.code) == ("no file [PKS-OPTION-013]", "OPTION-013")
    outer = KafkaSinkError(f"line 3: {inner}", code="OPTION-001")
    assert (str(outer), outer.code) == ("line 3: no file [PKS-OPTION-013]", "OPTION-013")
    own = KafkaSinkError(f"too many: {sentence(inner)}", code="ROW-001")
    assert str(own) == "too many: no file [PKS-ROW-001]"

    class OwnError(ProtocolError):
        code = "CONNECT-001"

    assert str(OwnError("no")) == "no [PKS-CONNECT-001]"
    assert str(OwnError("no", code="CONNECT-002")) == "no [PKS-CONNECT-002]"


def test_an_error_of_brokers_has_their_number():
    assert BrokerError(error_named("TOPIC_AUTHORIZATION_FAILED"), "w").code == "BROKER-029"
    assert BrokerError(error_named("UNKNOWN_SERVER_ERROR"), "w").code == "BROKER-000"
    assert TopicError("no", error_named("INVALID_TOPIC_EXCEPTION")).code == "BROKER-017"
    own = TopicError("no", error_named("INVALID_TOPIC_EXCEPTION"), code="TOPIC-001")
    assert own.code == "TOPIC-001"


def test_a_warning_ends_with_its_code(caplog):
    warn(logging.getLogger("here"), "TLS-001", "100 % of a: no [PKS-TLS-002]")
    [record] = caplog.records
    assert record.getMessage() == "100 % of a: no [PKS-TLS-002]"
    assert record.levelname == "WARNING"
    assert record.funcName == test_a_warning_ends_with_its_code.__name__


@pytest.mark.parametrize(
    "asked", ["PKS-OPTION-004", "OPTION-004", "pks-option-004", "… missing [PKS-OPTION-004]"]
)
def test_explain(asked, capsys):
    assert main(["explain", asked]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "PKS-OPTION-004\n  message    Option 'kafka.bootstrap.servers' must be "
    )
    names = [line.split()[0] for line in shown.splitlines() if re.match("  [a-z]", line)]
    assert names == ["message", "cause", "fix", "verify"]
    assert "](" not in shown


def test_explain_shows_links_as_commands_and_where_a_warning_is(capsys):
    assert main(["explain", "AUTH-001", "BROKER-029", "BROKER-999"]) == 0
    first, second, third = capsys.readouterr().out.split("\n\n")
    assert "\n  in the log " in first
    assert "a reference (pykafka-sink docs security)" in first
    assert "Grant the principal WRITE on the topic" in " ".join(second.split())
    assert "UNKNOWN_ERROR_CODE (999)" in third
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [f"PKS-{cause.code}" for cause in CAUSES]
    assert main(["explain", "PKS-OPTIN-004"]) == 1
    assert "Did you mean PKS-OPTION-004?" in capsys.readouterr().err
