"""``sasl.jaas.config``, read as Java reads it: ``Module required key="value" key=value;``.

No message here quotes the text: it holds passwords, and a wrong quote moves them to where a name is
expected. So a word of the text is named only if it is one that this package knows.

Source: ``JaasConfig``, ``JaasContext`` of Kafka 4.3; ``java.io.StreamTokenizer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError

OPTION = "kafka.sasl.jaas.config"
SHAPE = 'Module required name="value" name="value";'
FLAGS = ("required", "requisite", "sufficient", "optional")

_NOTHING = "\0"
"""Read at the end of the text. No text has it: it would be a space for the tokenizer."""
_LINE_ENDS = "\n\r" + _NOTHING
_QUOTES = "\"'"
_NUMERALS = frozenset("0123456789.")
_DIGITS = _NUMERALS | {"-"}
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_$")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
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
    is_closed: False for a quoted text that ended with its line
    """

    text: str
    is_text: bool
    is_closed: bool = True


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
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace(_NOTHING, "\\000")
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
        self._text = text.replace(_NOTHING, " ")
        self._place = 0
        self._unclosed = False
        self._tokens = self._all()

    def next(self) -> _Token | None:
        """The next token; None at the end."""
        token = next(self._tokens, None)
        if token is not None and not token.is_closed:
            self._unclosed = True
        return token

    def hint(self, otherwise: str | None = None) -> str:
        """What is probably wrong."""
        if self._unclosed:
            return "a quotation mark is not closed on its line"
        return otherwise or (
            f'it must be of the form {SHAPE} In double quotes write \\" for " and \\\\ for \\, '
            "and quote every value that holds / ; or #"
        )

    def _peek(self) -> str:
        return self._text[self._place] if self._place < len(self._text) else _NOTHING

    def _take(self) -> str:
        character = self._peek()
        self._place += 1
        return character

    def _all(self) -> Iterator[_Token]:
        while (character := self._peek()) != _NOTHING:
            if character <= " ":
                self._place += 1
            elif character == "/":
                self._skip_comment()
            elif character in _QUOTES:
                yield self._quoted(self._take())
            elif character in _DIGITS:
                yield self._number()
            elif _is_letter(character):
                yield _Token(self._word(), is_text=True)
            else:
                yield _Token(self._take(), is_text=False)

    def _word(self) -> str:
        start = self._place
        while _is_letter(self._peek()) or self._peek() in _DIGITS:
            self._place += 1
        return self._text[start : self._place]

    def _number(self) -> _Token:
        """What Java takes for a number, which is no value; or a minus sign alone."""
        if self._take() == "-" and self._peek() not in _NUMERALS:
            return _Token("-", is_text=False)
        while self._peek() in _NUMERALS:
            self._place += 1
        return _Token("0", is_text=False)

    def _skip_comment(self) -> None:
        """``/* … */``, else to the end of the line: a single / begins a comment too."""
        self._place += 1
        if self._peek() == "*":
            end = self._text.find("*/", self._place + 1)
            self._place = len(self._text) if end < 0 else end + 2
            return
        while self._peek() not in _LINE_ENDS:
            self._place += 1

    def _quoted(self, quote: str) -> _Token:
        """The text until ``quote``, or until the end of the line, where it just ends in Java."""
        found: list[str] = []
        while self._peek() != quote and self._peek() not in _LINE_ENDS:
            character = self._take()
            found.append(self._escaped() if character == "\\" else character)
        is_closed = self._peek() == quote
        if is_closed:
            self._place += 1
        return _Token("".join(found), is_text=True, is_closed=is_closed)

    def _escaped(self) -> str:
        r"""What follows a backslash: up to three octal digits (``\377`` at most), or a letter."""
        first = self._take()
        if first == _NOTHING or first not in _OCTAL:
            return "" if first == _NOTHING else _ESCAPES.get(first, first)
        digits = first
        most = 3 if first <= "3" else 2
        while len(digits) < most and self._peek() in _OCTAL:
            digits += self._take()
        return chr(int(digits, 8))


def _is_letter(character: str) -> bool:
    return character in _LETTERS or character >= "\xa0"
