"""User names, passwords and login options, from ``sasl.jaas.config`` or this sink's plain options.

``Login`` is the identity of this process for a cluster, which begins the conversations that prove
it. ``PasswordLogin`` is that of PLAIN and SCRAM.

Both may hold references (``${env:NAME}``, ``${file:/path:key}``, ``${dir:/path:file}``). References
are resolved for each conversation: the next connection uses a password that was changed in its
file.

A reference stands for the whole JAAS text, or for a part of a value. Its value is inserted after
the text is parsed, so a stored password needs no quotes and no escapes.

``sasl.jaas.config`` is read as Java reads it: ``Module required key="value" key=value;``. No
message of this module quotes the text, because it holds passwords, and a wrong quote moves a
password to the place of a name. A message names a word of the text only if this package knows the
word.

Source: ``JaasConfig``, ``JaasContext``, ``Login`` of Kafka 4.4; ``java.io.StreamTokenizer``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
    warn,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import REFERENCE, has_reference, references_in
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.config.security_keys import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, PLAIN, SCRAM
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.mechanisms import PlainSaslClient, ScramSaslClient, ScramUser
from spark_kafka_sink.security.references import (
    MissingCredentialsError,
    Resolve,
    authentication_errors,
)
from spark_kafka_sink.security.references import resolve as resolve_text

# --- JAAS ----------------------------------------------------------------------------------------

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
"""Each match is a token, or space and comments, which are not tokens."""
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MODULE = re.compile(r"(?:[a-z]\w*\.)+[A-Z]\w*LoginModule")


class JaasEntry(NamedTuple):
    """One login module and its options. Its representation shows no value.

    module: the class as written
    options: by name
    """

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        module = shown_module(self.module) or "[hidden]"
        return f"JaasEntry({module}, {sorted(map(shown_word, self.options))})"


class _Text(str):
    """A word or a quoted text; any other token is a plain string of one character."""


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
"""Names of options that a message may show."""


def shown_word(name: str) -> str:
    """Return the name of an option for a message, "an option" if the name is unknown."""
    return f"'{name}'" if name in KNOWN_OPTIONS else "an option"


def shown_module(module: str) -> str | None:
    """Return the class of a login module for a message; None if ``module`` is no class name."""
    return module if _MODULE.fullmatch(module) else None


def parse_jaas(text: str) -> JaasEntry:
    """Return the one login module of ``text``. Raises ConfigError, which quotes nothing of it."""
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
    """Return ``value`` in double quotes and with escapes, as a JAAS text needs it."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\000")
    return '"' + text.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _entry(first: str, tokens: _Tokens) -> JaasEntry:
    if not isinstance(first, _Text):
        raise _error("does not begin with the class of a login module", f"write {SHAPE}")
    flag = tokens.next()
    if flag == "{" and not isinstance(flag, _Text):
        raise _error(
            "is an entry of a JAAS file",
            "leave out KafkaClient { before the login module, and }; at the end",
        )
    if not isinstance(flag, _Text) or flag.lower() not in FLAGS:
        raise _error(
            f"does not name one of {', '.join(FLAGS)} after its first word",
            f"it must be of the form {SHAPE}",
        )
    options: dict[str, str] = {}
    previous = "the flag"
    while (name := tokens.next()) is not None and (isinstance(name, _Text) or name != ";"):
        equals = tokens.next()
        if not isinstance(name, _Text) or isinstance(equals, _Text) or equals != "=":
            raise _error(f"has no name=value after {previous}", tokens.hint())
        value = tokens.next()
        if not isinstance(value, _Text):
            raise _error(
                f"has no value for {shown_word(name)}",
                "a value that begins with a digit or holds other characters than letters, digits, "
                '"-", "_", "." and "$" must stand in double quotes',
            )
        options[str(name)] = str(value)
        previous = f"the value of {shown_word(name)}"
    if name is None:
        raise _error("does not end with a semicolon", tokens.hint("put ; at the end"))
    return JaasEntry(str(first), options)


def _error(what: str, advice: str) -> ConfigError:
    return ConfigError(f"{OPTION} {what}: {advice}", code="AUTH-006")


class _Tokens:
    """The tokens of a JAAS text, one after the other."""

    def __init__(self, text: str) -> None:
        # Java's tokenizer treats NUL as a space.
        self._matches = _TOKEN.finditer(text.replace("\0", " "))
        self._unclosed = False

    def next(self) -> str | None:
        for match in self._matches:
            if match["quote"] is not None:
                # An unclosed text ends with its line.
                self._unclosed |= match["closed"] is None
                return _Text(_ESCAPE.sub(_unescaped, match["body"]))
            if match["word"] is not None:
                return _Text(match["word"])
            if match["number"] is not None:
                # Java's tokenizer parses a number, and keeps no text of it.
                return "0"
            if match["other"] is not None:
                return match["other"]
        return None

    def hint(self, otherwise: str | None = None) -> str:
        if self._unclosed:
            return "a quotation mark is not closed on its line"
        return otherwise or (
            f'it must be of the form {SHAPE} In double quotes write \\" for " and \\\\ for \\, '
            "and quote every value that holds / ; or #"
        )


def _unescaped(escape: re.Match[str]) -> str:
    r"""Return the character of an escape: up to three octal digits, \377 at most, or a letter."""
    found = escape[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPES.get(found, found)


# --- credentials ---------------------------------------------------------------------------------

_KAFKA = "org.apache.kafka.common.security."
_OAUTH_MODULE = f"{_KAFKA}oauthbearer.OAuthBearerLoginModule"

LOGIN_MODULES = {
    PLAIN: (f"{_KAFKA}plain.PlainLoginModule",),
    **dict.fromkeys(SCRAM, (f"{_KAFKA}scram.ScramLoginModule",)),
    OAUTHBEARER: (_OAUTH_MODULE,),
    GSSAPI: ("com.sun.security.auth.module.Krb5LoginModule",),
    AWS_MSK_IAM: ("software.amazon.msk.auth.iam.IAMLoginModule", _OAUTH_MODULE),
}
"""Mechanism -> its login modules, the usual one first. AWS also has tokens for Java's OAUTHBEARER,
with a callback handler of its own."""

_SHADED = ("kafkashaded.", "shadedmskiam.")
"""Prefixes of class names on Databricks."""

_PRIVATE_USE = range(0xE000, 0xF900)
"""Characters without a meaning, which a JAAS text accepts as letters."""


def unresolved_entry(text: str) -> JaasEntry | None:
    """Return the login module and its options with unresolved references.

    None if the whole text is one reference.
    """
    whole = text.strip()
    if REFERENCE.fullmatch(whole) and len(references_in(whole)) == 1:
        return None
    references: list[str] = []
    mark = next(chr(code) for code in _PRIVATE_USE if chr(code) not in text)

    def marked(found: re.Match[str]) -> str:
        if not references_in(found.group()):
            return found.group()
        references.append(found.group())
        return f"{mark}{len(references) - 1}{mark}"

    def restored(value: str) -> str:
        found = re.sub(f"{mark}([0-9]+){mark}", lambda found: references[int(found[1])], value)
        spelled = (match[0] for match in REFERENCE.finditer(found) if references_in(match[0]))
        # config/config_providers.py checks the text, in which escapes would hide a reference.
        if not {*spelled} <= {*references}:
            raise _error("spells a reference with escapes", "write ${, without a backslash")
        return found

    entry = parse_jaas(REFERENCE.sub(marked, text))
    return JaasEntry(
        restored(entry.module),
        {restored(name): restored(value) for name, value in entry.options.items()},
    )


def unresolved_jaas_entry(config: SaslConfig) -> JaasEntry | None:
    """Return the JAAS entry with unresolved references; None if there is no readable text.

    Raises ConfigError if the text is no JAAS, or names another mechanism's login module.
    """
    if config.jaas_config is None:
        return None
    entry = unresolved_entry(config.jaas_config.reveal())
    if entry is not None and not has_reference(entry.module):
        check_module(entry, config.mechanism)
    return entry


def login_options(
    config: SaslConfig, resolve: Resolve = resolve_text, prefix: str = ""
) -> dict[str, str]:
    """Return the JAAS options with all references resolved; none without ``sasl.jaas.config``.

    prefix: return only options whose names begin so; references of other options are not resolved

    Raises AuthenticationError if a reference cannot be resolved, or its value is no JAAS.
    """
    if config.jaas_config is None:
        return {}
    text = config.jaas_config.reveal()
    with authentication_errors():
        entry = unresolved_entry(text)
        if entry is None:
            entry = parse_jaas(resolve(text.strip(), OPTION))
            check_module(entry, config.mechanism)
            return {k: value for k, value in entry.options.items() if k.startswith(prefix)}
        entry = JaasEntry(resolve(entry.module, OPTION), entry.options)
        check_module(entry, config.mechanism)
        wanted = [name for name in entry.options if name.startswith(prefix)]
        return {name: resolve(entry.options[name], OPTION) for name in wanted}


def check_module(entry: JaasEntry, mechanism: str) -> None:
    """Raise ConfigError if the login module is not the mechanism's."""
    module = entry.module
    for prefix in _SHADED:
        module = module.removeprefix(prefix)
    if module in LOGIN_MODULES[mechanism]:
        return
    others = sorted(name for name, known in LOGIN_MODULES.items() if module == known[0])
    what, wanted = shown_module(entry.module), LOGIN_MODULES[mechanism][0]
    if others:
        advice = f", whose login module is {wanted}"
        if mechanism == GSSAPI:
            advice = f", the default: set kafka.sasl.mechanism={' or '.join(others)}"
        raise ConfigError(
            f"{OPTION}: the login module {what} is that of {' and '.join(others)}, but "
            f"kafka.sasl.mechanism is {mechanism}{advice}",
            code="AUTH-004",
        )
    problem = (
        "its first word is not the class of a login module: look for a typing error"
        if what is None
        else f"the login module {what} is not known"
    )
    default = ", which is the default," if mechanism == GSSAPI else ""
    raise ConfigError(
        f"{OPTION}: {problem}. That of kafka.sasl.mechanism={mechanism}{default} is {wanted}",
        code="AUTH-006",
    )


# Names in JAAS, and how messages name the options of the two kinds.
_PLAIN_OPTIONS = {"username": "kafka.sasl.username", "password": "kafka.sasl.password"}
_JAAS_OPTIONS = {name: f"'{name}' in {OPTION}" for name in _PLAIN_OPTIONS}


def check_password_options(config: SaslConfig) -> None:
    """Raise ConfigError if name and password are missing or set twice."""
    has_plain = config.username is not None or config.password is not None
    if has_plain and config.jaas_config is not None:
        raise ConfigError(
            f"{OPTION} and {', '.join(_PLAIN_OPTIONS.values())} exclude each other: give either "
            "the JAAS text or the two plain options",
            code="OPTION-009",
        )
    if not has_plain and config.jaas_config is None:
        raise ConfigError(
            f"kafka.sasl.mechanism={config.mechanism} needs "
            f"{' and '.join(_PLAIN_OPTIONS.values())}, or "
            f'{OPTION}={LOGIN_MODULES[config.mechanism][0]} required username="…" password="…";',
            code="AUTH-005",
        )
    entry = unresolved_jaas_entry(config)
    if entry is not None:
        _check_present(entry.options, _JAAS_OPTIONS)
    elif has_plain:
        _check_present(_plain_options(config), _PLAIN_OPTIONS)


def resolve_user(config: SaslConfig, resolve: Resolve = resolve_text) -> ScramUser:
    """Return the current name and password. Raises AuthenticationError if they cannot be read."""
    has_jaas = config.jaas_config is not None
    with authentication_errors():
        if has_jaas:
            options = login_options(config, resolve)
        else:
            given = _plain_options(config).items()
            options = {name: resolve(value, f"kafka.sasl.{name}") for name, value in given}
        _check_present(options, _JAAS_OPTIONS if has_jaas else _PLAIN_OPTIONS)
    is_token = has_jaas and options.get("tokenauth", "").lower() == "true"
    return ScramUser(options["username"], Secret(options["password"]), is_token)


def _plain_options(config: SaslConfig) -> dict[str, str]:
    password = None if config.password is None else config.password.reveal()
    given = {"username": config.username, "password": password}
    return {name: value for name, value in given.items() if value is not None}


def _check_present(options: Mapping[str, str], shown: Mapping[str, str]) -> None:
    for name, option in shown.items():
        if not options.get(name):
            what = "is empty" if name in options else "is missing"
            raise ConfigError(f"{option} {what}", code="AUTH-005")


# --- logins --------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)


class Login:
    """The identity of this process for one cluster. mechanism: its name for SaslHandshake"""

    mechanism: str

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Get what conversations need and wait for it: the first token, a ticket.

        Called before the first connection of a producer or client, in a thread that may wait, and
        outside of any lock. Returns at once if nothing has to be fetched.

        hosts: of the bootstrap brokers, where the login depends on them (the region of AWS)

        Raises AuthenticationError; CredentialsUnavailableError if a retry may succeed.
        """
        raise NotImplementedError

    def create_sasl_client(self, host: str) -> SaslClient:
        """Begin an authentication with the broker ``host``, on a new or an open connection.

        Does not wait for a token: another thread fetches one that is missing or has expired. Raises
        CredentialsUnavailableError until the token has arrived, and AuthenticationError if a retry
        cannot succeed.
        """
        raise NotImplementedError

    def credentials_version(self) -> object:
        """Return a value that changes when connections must be opened again with other credentials.

        None for tokens and tickets, which the login renews itself.
        """
        return None

    def close(self) -> None:
        """Stop renewing tokens. Only the creator of a login closes it."""


class PasswordLogin(Login):
    """PLAIN and SCRAM. References are resolved for each conversation.

    While a name or password cannot be read, for example because its file is being written, the
    former value stays in use, like the former content of a store. If it is gone, the former value
    is not used.
    """

    def __init__(self, config: SaslConfig) -> None:
        self._config = config
        self._user: ScramUser | None = None
        self._last_warning = ""
        self.mechanism = config.mechanism

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        self.create_sasl_client("")

    def create_sasl_client(self, host: str) -> SaslClient:
        user = self.credentials_version()
        if self.mechanism == PLAIN:
            return PlainSaslClient(user.username, user.password)
        return ScramSaslClient(self.mechanism, user)

    def credentials_version(self) -> ScramUser:
        """Return name and password.

        Raises AuthenticationError if they were never readable; CredentialsUnavailableError if their
        file, its key or their variable is gone.
        """
        try:
            self._user, self._last_warning = resolve_user(self._config), ""
        except AuthenticationError as error:
            if self._user is None:
                raise
            if isinstance(error, MissingCredentialsError):
                raise CredentialsUnavailableError(
                    f"{error}. What was read before is no longer used", code=error.code
                ) from None
            if self._last_warning != str(error):
                self._last_warning = str(error)
                warn(logger, error.code, f"{error}. What was read before stays in use")
        return self._user
