"""docs/security.md: every recipe is a set of options that the sink takes without a word."""

import ast
import re
from importlib.util import find_spec

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import parse_properties
from spark_kafka_sink.config.security_config import DEFAULT_REGEX, SUGGESTED_REGEX, clear_secrets
from spark_kafka_sink.config.security_keys import MECHANISMS
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.login import check
from tests.snippets import REPOSITORY, blocks

DOCUMENT = "docs/security.md"
TEXT = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
RECIPES = [
    *blocks("README.md", "properties"),
    *(block for block in blocks(DOCUMENT, "properties") if "bootstrap" in block.text),
]
PROVIDERS = blocks(DOCUMENT, "py")
PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "aws_msk_iam_sasl_signer"}


def options_of(block):
    return {name: value for name, value, _ in parse_properties(block.text, block.name)}


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_recipes_are_taken(block):
    given = options_of(block)
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:9093", **given})
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


def test_there_is_a_recipe_for_each_mechanism():
    servers = {"kafka.bootstrap.servers": "b:9093"}
    parsed = [SinkOptions.parse({**servers, **options_of(block)}) for block in RECIPES]
    securities = [options.producer.security for options in parsed]
    mechanisms = {security.sasl.mechanism for security in securities if security.sasl is not None}
    assert mechanisms == set(MECHANISMS)
    assert len(RECIPES) >= 15


@pytest.mark.parametrize("block", PROVIDERS, ids=lambda block: block.name)
def test_token_providers_are_python_that_the_recipes_name(block):
    functions = [n.name for n in ast.walk(ast.parse(block.text)) if isinstance(n, ast.FunctionDef)]
    named = [
        options_of(recipe).get("kafka.sasl.oauthbearer.token.provider", "") for recipe in RECIPES
    ]
    assert any(f"tokens:{name}" in named for name in functions)


def test_the_expressions_are_those_of_the_code():
    assert f"`{DEFAULT_REGEX}`" in TEXT
    assert f"spark.redaction.regex = {SUGGESTED_REGEX}\n" in TEXT
    conf = (REPOSITORY / "conf" / "secured.conf").read_text(encoding="utf-8")
    assert f" {SUGGESTED_REGEX}\n" in conf


def texts_of_the_code():
    """All texts in the package's code, one to a line; parts of one f-string apart."""
    found = set()
    for path in (REPOSITORY / "spark_kafka_sink").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return "\n".join(found)


def messages():
    """The first column of the rows about secured connections, without what is in angle brackets."""
    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    section = text.split("\n## Secured connections\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [row.split(" | ")[0] for row in rows if not row.startswith(("| message", "| ---"))]


# Words of brokers, and tables of codes that messages are made of.
OF_OTHERS = (
    "PLAIN: Authentication failed: Invalid username or password",
    "SCRAM-SHA-512: Authentication failed during authentication",
    "TOPIC_AUTHORIZATION_FAILED (29)",
    "CLUSTER_AUTHORIZATION_FAILED (31)",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)",
)


def test_messages_are_word_for_word_those_of_the_code():
    texts = texts_of_the_code()
    missing = []
    for message in messages():
        quoted = re.findall(r"`([^`]+)`", message)
        assert quoted, message
        for part in (part for text in quoted for part in re.split(r"…|'|\[hidden\]|=", text)):
            words = part.strip(" .,:;(")
            if len(words) >= 12 and words not in texts and words not in OF_OTHERS:
                missing.append(words)
    assert missing == []
