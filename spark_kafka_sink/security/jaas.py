"""``sasl.jaas.config``, read as Java reads it: ``Module required key="value" key=value;``.

No message here quotes the text: it holds passwords, and a wrong quote moves them to where a name is
expected. So a word of the text is named only if it is one that this package knows.

Source: ``JaasConfig``, ``JaasContext`` of Kafka 4.3; ``java.io.StreamTokenizer``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError

OPTION = "kafka.sasl.jaas.config"
SHAPE = 'Module required name="value" name="value";'
FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
    [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n\r]*                # a single / begins a comment too
    | (?P<quote>["'])(?P<body>(?:\\.|(?!(?P=quote))[^\n\r\\])*)\\?(?P<closed>(?P=quote))?
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9._$\xa0-\U0010ffff-]*)
    | (?P<number>-?[0-9.]+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Each match is a token, or space and comments, which are none."""
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MODULE = re.compile(r"(?:[a-z]\w*\.)+[A-Z]\w*LoginModule")


class JaasEntry(NamedTuple):
    """One login module and its options. Its representation shows no value.

    module: the class as it was written
    options: by name
    """

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        module = shown_module(self.module) or "[hidden]"
        return f"JaasEntry({module}, {sorted(map(shown, self.options))})"


class _Token(NamedTuple):
    """A word or a quoted text; anything else is one character with ``is_text`` False.

    A number is "0": Java takes what begins with a digit for a number, and has no text of it.
    """

    text: str
    is_text: bool


KNOWN_OPTIONS = frozenset(
    {
        *("username", "password", "tokenauth", "serviceName"),
        *("useKeyTab", "keyTab", "principal", "storeKey", "useTicketCache", "ticketCache"),
        *("doNotPrompt", "renewTGT", "isInitiator", "refreshKrb5Config", "debug"),
        *("clientId", "clientSecret", "scope"),
        *("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion"),
        *("awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey"),
        *("awsRoleSessionToken", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"),
        *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
        *("ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.password"),
        *("ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        *("ssl.key.password", "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites"),
    }
)
"""Names of options that may stand in a message."""


def shown(name: str) -> str:
    """The name of an option for a message, if it is certain that it is one."""
    return f"'{name}'" if name in KNOWN_OPTIONS else "an option"


def shown_module(module: str) -> str | None:
    """The class of a login module for a message, if it is certain that it is one."""
    return module if _MODULE.fullmatch(module) else None


def parse_jaas(text: str) -> JaasEntry:
    """The one login module of ``text``. Raises ConfigError, which quotes nothing of it."""
    tokens = _Tokens(text)
    entries: list[JaasEntry] = []
    while (first := tokens.next()) is not None:
        entries.append(_entry(first, tokens))
    if not entries:
        raise _error("is empty", f"it must be of the form {SHAPE}")
    if len(entries) > 1:
        raise _error(f"holds {len(entries)} login modules", "exactly one is allowed")
    return entries[0]


def quoted(value: str) -> str:
    """``value`` as it must be written in a JAAS text to be read as itself."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\000")
    return '"' + text.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _entry(first: _Token, tokens: _Tokens) -> JaasEntry:
    if not first.is_text:
        raise _error("does not begin with the class of a login module", f"write {SHAPE}")
    flag = tokens.next()
    if flag is not None and not flag.is_text and flag.text == "{":
        raise _error(
            "is an entry of a JAAS file",
            "leave out KafkaClient { before the login module, and }; at the end",
        )
    if flag is None or not flag.is_text or flag.text.lower() not in FLAGS:
        raise _error(
            f"does not name one of {', '.join(FLAGS)} after its first word",
            f"it must be of the form {SHAPE}",
        )
    options: dict[str, str] = {}
    previous = "the flag"
    while (token := tokens.next()) is not None and (token.is_text or token.text != ";"):
        name, value = _option(token, tokens, previous)
        options[name] = value
        previous = f"the value of {shown(name)}"
    if token is None:
        raise _error("does not end with a semicolon", tokens.hint("put ; at the end"))
    return JaasEntry(first.text, options)


def _option(name: _Token, tokens: _Tokens, previous: str) -> tuple[str, str]:
    """One name and its value. ``previous``: what stands before it, for messages."""
    equals = tokens.next()
    if not name.is_text or equals is None or equals.is_text or equals.text != "=":
        raise _error(f"has no name=value after {previous}", tokens.hint())
    value = tokens.next()
    if value is None or not value.is_text:
        raise _error(
            f"has no value for {shown(name.text)}",
            'a value that begins with a digit or holds other characters than letters, digits, "-", '
            '"_", "." and "$" must stand in double quotes',
        )
    return name.text, value.text


def _error(what: str, advice: str) -> ConfigError:
    return ConfigError(f"{OPTION} {what}: {advice}")


class _Tokens:
    """The tokens of a JAAS text, one after the other."""

    def __init__(self, text: str) -> None:
        # NUL is a space for Java's tokenizer.
        self._matches = _TOKEN.finditer(text.replace("\0", " "))
        self._unclosed = False

    def next(self) -> _Token | None:
        """Return the next token; None at the end."""
        for match in self._matches:
            if match["quote"] is not None:
                # A text that is not closed ends with its line.
                self._unclosed |= match["closed"] is None
                return _Token(_ESCAPE.sub(_unescaped, match["body"]), is_text=True)
            if match["word"] is not None:
                return _Token(match["word"], is_text=True)
            if match["number"] is not None:
                return _Token("0", is_text=False)
            if match["other"] is not None:
                return _Token(match["other"], is_text=False)
        return None

    def hint(self, otherwise: str | None = None) -> str:
        """What is probably wrong."""
        if self._unclosed:
            return "a quotation mark is not closed on its line"
        return otherwise or (
            f'it must be of the form {SHAPE} In double quotes write \\" for " and \\\\ for \\, '
            "and quote every value that holds / ; or #"
        )


def _unescaped(escape: re.Match[str]) -> str:
    """The character of an escape: up to three octal digits, \\377 at most, or a letter."""
    found = escape[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPES.get(found, found)
