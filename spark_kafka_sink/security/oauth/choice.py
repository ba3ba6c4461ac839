"""Chooses how a token is fetched, from options and JAAS options, with Java's precedence.

    1. sasl.oauthbearer.token.provider: the user's own code
    2. jwt.retriever.class; DefaultJwtRetriever means FileJwtRetriever if the URL is file:,
       else ClientCredentialsJwtRetriever
    3. of ClientCredentialsJwtRetriever: assertion.file, else assertion.claim.iss, else the secret

An option takes precedence over the JAAS option of the same meaning. Java's unsecured tokens, which
its login module creates if there is no endpoint, are rejected.

Source: ``DefaultJwtRetriever``, ``ClientCredentialsRequestFormatterFactory``, ``ConfigOrJaas`` of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import RECIPES, has_reference
from spark_kafka_sink.config.security_config import AssertionConfig, OAuthConfig
from spark_kafka_sink.security.credentials import OPTION as JAAS
from spark_kafka_sink.security.credentials import Resolve

PREFIX = "kafka.sasl.oauthbearer."
URL_OPTION = f"{PREFIX}token.endpoint.url"
ID_OPTION = f"{PREFIX}client.credentials.client.id"
SECRET_OPTION = f"{PREFIX}client.credentials.client.secret"
SCOPE_OPTION = f"{PREFIX}scope"

_UNSECURED = "unsecuredLoginStringClaim_"
_STRIMZI = "oauth."
_FILE_SCHEME = "file:"


class Way(Enum):
    """The ways to fetch a token."""

    PROVIDER = "token provider"
    FILE = "file"
    SECRET = "client credentials with a secret"
    CLIENT_ASSERTION = "client credentials with a signed assertion"
    JWT_BEARER = "jwt-bearer"


class Client(NamedTuple):
    """The client of the token endpoint, and its scope; None if not configured."""

    id: str | None
    secret: Secret | None
    scope: str | None


def way_of(oauth: OAuthConfig) -> Way:
    """Return the way, for a URL with its references resolved. Raises ConfigError without a URL."""
    if oauth.token_provider is not None:
        return Way.PROVIDER
    is_file = (oauth.token_endpoint_url or "").strip().lower().startswith(_FILE_SCHEME)
    if oauth.retriever == "JwtBearerJwtRetriever":
        return Way.JWT_BEARER
    if oauth.retriever == "FileJwtRetriever" or (oauth.retriever.startswith("Default") and is_file):
        return Way.FILE
    if oauth.assertion.file is not None or oauth.assertion.claim_iss is not None:
        return Way.CLIENT_ASSERTION
    return Way.SECRET


def _check_names(options: Mapping[str, str]) -> None:
    if any(name.startswith(_STRIMZI) for name in options):
        raise ConfigError(
            f"{JAAS} has options that begin with '{_STRIMZI}': they are those of Strimzi's Java "
            f"classes, and are not read. {RECIPES} has a table of what to write instead"
        )


def client_of(oauth: OAuthConfig, options: Mapping[str, str], way: Way) -> Client:
    """Return id, secret and scope from options, else from JAAS options. Raises ConfigError."""
    _check_names(options)
    client_id = _first(oauth.client_id, options.get("clientId"))
    given = None if oauth.client_secret is None else oauth.client_secret.reveal()
    secret = _first(given, options.get("clientSecret"))
    if way is Way.SECRET and (client_id is None or secret is None):
        missing = (
            f"{ID_OPTION} (or clientId"
            if client_id is None
            else f"{SECRET_OPTION} (or clientSecret"
        )
        raise ConfigError(
            f"{missing} in {JAAS}) is missing: {URL_OPTION} asks for client credentials"
        )
    jaas_scope = options.get("scope") if way is not Way.JWT_BEARER else None
    return Client(
        client_id,
        None if secret is None else Secret(secret),
        _first(oauth.scope, jaas_scope),
    )


def _first(*texts: str | None) -> str | None:
    """Return the first given text, stripped of blanks; None if that text is blank."""
    given = next((text for text in texts if text is not None), "")
    return given.strip() or None


def path_of_file_url(url: str) -> str:
    """Return the path in ``file:/path`` or ``file:///path``. Raises ConfigError."""
    text = url.strip()
    if not text.lower().startswith(_FILE_SCHEME):
        raise ConfigError(f"{URL_OPTION} must begin with file: for FileJwtRetriever")
    try:
        path = urlsplit(text).path
    except ValueError:
        path = ""
    if not path:
        raise ConfigError(f"{URL_OPTION} names no file")
    return path


def check_oauth(oauth: OAuthConfig, options: Mapping[str, str] | None) -> None:
    """Check what is known before a token is fetched. Raises ConfigError.

    options: of JAAS, with unresolved references; None if the whole JAAS text is a reference
    """
    url = oauth.token_endpoint_url
    if oauth.token_provider is not None:
        return
    _check_names(options or {})
    if url is None:
        raise ConfigError(_no_source(options or {}))
    if has_reference(url):
        return
    way = way_of(oauth)
    if way is Way.FILE:
        path_of_file_url(url)
        return
    if url.strip().lower().startswith(_FILE_SCHEME):
        raise ConfigError(
            f"{URL_OPTION} is a file:, but {PREFIX}jwt.retriever.class={oauth.retriever} needs "
            "https:// or http://"
        )
    if way is not Way.SECRET:
        _check_assertion(oauth.assertion)
    if options is not None:
        client_of(oauth, options, way)


def _no_source(options: Mapping[str, str]) -> str:
    unsecured = any(name.startswith(_UNSECURED) for name in options)
    what = (
        f"unsecured tokens ({_UNSECURED}… in {JAAS}) prove nothing and are not made"
        if unsecured
        else "there is nothing that gives a token"
    )
    return (
        f"kafka.sasl.mechanism=OAUTHBEARER: {what}. Set {URL_OPTION}, or "
        f"{PREFIX}token.provider=package.module:callable"
    )


def _check_assertion(assertion: AssertionConfig) -> None:
    if assertion.file is None and assertion.private_key_file is None:
        raise ConfigError(
            f"{PREFIX}assertion.private.key.file or {PREFIX}assertion.file is missing: there is "
            "nothing to sign assertions with"
        )


def losers(oauth: OAuthConfig, options: Mapping[str, str]) -> list[str]:
    """Return a sentence for each given option that another option overrides."""
    found = [
        f"{option} wins over {name} in {JAAS}, which is not used"
        for option, given, name in (
            (ID_OPTION, oauth.client_id, "clientId"),
            (SECRET_OPTION, oauth.client_secret, "clientSecret"),
            (SCOPE_OPTION, oauth.scope, "scope"),
        )
        if given is not None and name in options
    ]
    assertion = oauth.assertion
    if oauth.token_provider is not None and oauth.token_endpoint_url is not None:
        found.append(f"{PREFIX}token.provider wins over {URL_OPTION}, which is not used")
    elif assertion.file is not None and assertion.claim_iss is not None:
        found.append(
            f"{PREFIX}assertion.file wins over {PREFIX}assertion.claim.iss and the other options "
            "of assertions, which are not used"
        )
    has_secret = oauth.client_secret is not None or "clientSecret" in options
    if has_secret and oauth.token_provider is None and way_of(oauth) is Way.CLIENT_ASSERTION:
        found.append("a signed assertion takes the place of the client's secret, which is not used")
    return found


def resolved(config: OAuthConfig, resolve: Resolve) -> OAuthConfig:
    """Return ``config`` with the references in all its texts resolved. Raises ConfigError."""
    changed = _resolved_texts(config, PREFIX, resolve)
    assertion = config.assertion
    changes = _resolved_texts(assertion, f"{PREFIX}assertion.", resolve)
    return replace(config, **changed, assertion=replace(assertion, **changes))


def _resolved_texts(
    config: OAuthConfig | AssertionConfig, prefix: str, resolve: Resolve
) -> dict[str, Any]:
    """Return the fields that are texts or secrets, by name."""
    changed: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        option = _NAMES.get(field.name, prefix + field.name.replace("_", "."))
        if isinstance(value, str):
            changed[field.name] = resolve(value, option)
        elif isinstance(value, Secret):
            changed[field.name] = Secret(resolve(value.reveal(), option))
    return changed


_NAMES = {"client_id": ID_OPTION, "client_secret": SECRET_OPTION}
