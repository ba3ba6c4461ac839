"""Java classes that options name and that have a counterpart here, and what is said of others.

Databricks ships Kafka's client and Amazon's library under other names,
``kafkashaded.org.apache.kafka…`` and ``shadedmskiam.software.amazon…``: the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

SHADED = ("kafkashaded.", "shadedmskiam.")
_KAFKA = "org.apache.kafka.common."
_OAUTH = f"{_KAFKA}security.oauthbearer."

OAUTH_LOGIN_HANDLER = "OAuthBearerLoginCallbackHandler"
IAM_LOGIN_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
IAM_CLIENT_HANDLER = "IAMClientCallbackHandler"
RETRIEVERS = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
    "JwtBearerJwtRetriever",
)
VALIDATORS = ("DefaultJwtValidator", "ClientJwtValidator")

# Full name -> simple name, by which the rest of the code knows it.
LOGIN_HANDLERS = {
    f"{_OAUTH}{OAUTH_LOGIN_HANDLER}": OAUTH_LOGIN_HANDLER,
    f"{_OAUTH}secured.{OAUTH_LOGIN_HANDLER}": OAUTH_LOGIN_HANDLER,
    f"software.amazon.msk.auth.iam.{IAM_LOGIN_HANDLER}": IAM_LOGIN_HANDLER,
}
CLIENT_HANDLERS = {
    f"software.amazon.msk.auth.iam.{IAM_CLIENT_HANDLER}": IAM_CLIENT_HANDLER,
    f"software.amazon.msk.auth.iam.{IAM_LOGIN_HANDLER}": IAM_LOGIN_HANDLER,
}
JWT_RETRIEVERS = {f"{_OAUTH}{name}": name for name in RETRIEVERS}
JWT_VALIDATORS = {f"{_OAUTH}{name}": name for name in VALIDATORS}
LOGIN_CLASSES = {
    f"{_OAUTH}internals.OAuthBearerRefreshingLogin": "OAuthBearerRefreshingLogin",
    f"{_KAFKA}security.authenticator.DefaultLogin": "DefaultLogin",
    f"{_KAFKA}security.kerberos.KerberosLogin": "KerberosLogin",
}
ENGINE_FACTORIES = {f"{_KAFKA}security.ssl.DefaultSslEngineFactory": "DefaultSslEngineFactory"}

RECIPES = "docs/security.md (pykafka-sink docs security)"
TOKENS_OF_YOUR_OWN = (
    "tokens of a token endpoint need no class, but kafka.sasl.oauthbearer.token.endpoint.url; "
    "tokens of your own come from a Python callable, "
    "kafka.sasl.oauthbearer.token.provider=package.module:callable. For the clouds' and Strimzi's "
    f"classes, {RECIPES} has recipes"
)


def without_shade(java_class: str) -> str:
    """The name that the class has elsewhere."""
    for shade in SHADED:
        java_class = java_class.removeprefix(shade)
    return java_class


def simple_name(known: Mapping[str, str]) -> Callable[[str], str]:
    """For ``ConfigKey.convert``: the simple name of a class that is known, else the text as is."""
    return lambda value: known.get(without_shade(value), value)


def one_of_classes(known: Mapping[str, str], instead: str) -> Callable[[str], str | None]:
    """For ``ConfigKey.validator``, after ``simple_name``. instead: of a class that is not known."""

    def problem(value: str) -> str | None:
        if value in known.values():
            return None
        return not_a_class_here(known, instead) if value else "is empty: leave it out"

    return problem


def not_a_class_here(known: Iterable[str], instead: str) -> str:
    """Why a class is refused that is none of the ``known`` ones, and what to do."""
    return (
        f"names a Java class, and there is no JVM here. Instead: {instead}. Taken by name: "
        f"{', '.join(known)}"
    )
