"""docs/security.md: its recipes are taken, and its expressions are those of the code."""

import ast
from importlib.util import find_spec

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import parse_properties
from spark_kafka_sink.config.security_config import DEFAULT_REGEX, SUGGESTED_REGEX, clear_secrets
from spark_kafka_sink.config.security_keys import MECHANISMS
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.security import check
from tests.snippets import REPOSITORY, blocks
from tests.tables import each_row

DOCUMENT = "docs/security.md"
TEXT = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")

RECIPES = [
    *blocks("README.md", "properties"),
    *(block for block in blocks(DOCUMENT, "properties") if "bootstrap" in block.text),
]


PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "aws_msk_iam_sasl_signer"}
SERVERS = {"kafka.bootstrap.servers": "b:9093"}


def options_of(block):
    return {name: value for name, value, _ in parse_properties(block.text, block.name)}


@each_row("block", RECIPES, ids=lambda block: block.name)
def test_recipes_are_taken(block):
    given = options_of(block)
    options = SinkOptions.parse({**SERVERS, **given})
    assert options.notes == ()
    assert clear_secrets(given) == []
    sasl = options.producer.security.sasl
    if sasl is None:
        assert options.producer.security.protocol == "SSL"
        return
    package = PACKAGES.get(sasl.mechanism)
    if package is None or find_spec(package) is not None:
        check(sasl)
    else:
        with pytest.raises(ConfigError, match=f"needs the Python package {package}"):
            check(sasl)


def test_there_is_a_recipe_for_each_mechanism_and_token_provider():
    given = [options_of(block) for block in RECIPES]
    securities = [SinkOptions.parse({**SERVERS, **options}).producer.security for options in given]
    mechanisms = {security.sasl.mechanism for security in securities if security.sasl is not None}
    assert mechanisms == set(MECHANISMS)
    assert len(RECIPES) >= 15
    named = [options.get("kafka.sasl.oauthbearer.token.provider", "") for options in given]
    for block in blocks(DOCUMENT, "py"):
        nodes = ast.walk(ast.parse(block.text))
        functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
        assert any(f"tokens:{name}" in named for name in functions), block.name


def test_the_expressions_are_those_of_the_code():
    assert f"`{DEFAULT_REGEX}`" in TEXT
    assert DEFAULT_REGEX in SUGGESTED_REGEX
    assert f"spark.redaction.regex = {SUGGESTED_REGEX}\n" in TEXT
    conf = (REPOSITORY / "conf" / "secured.conf").read_text(encoding="utf-8")
    assert f" {SUGGESTED_REGEX}\n" in conf
