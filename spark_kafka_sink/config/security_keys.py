"""List the options that secure connections: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

``sasl.oauthbearer.*`` are those of KIP-768, KIP-1139 and KIP-1258.

Source: ``SslConfigs``, ``SaslConfigs`` of Kafka 4.4.
"""

from __future__ import annotations

import re

from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    RECIPES,
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    canonical_case,
    choice,
    flag,
    java_class,
    non_empty,
    one_of,
    optional_text,
    secret,
)

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
OLD_PROTOCOLS = ("TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
STORE_TYPES = ("JKS", "PKCS12", "PEM")

_ANY_VERSION = ("TLS", "SSL")
# TLS 1.3 suites have no _WITH_ in their names.
_SUITE = re.compile(r"(TLS|SSL)_[A-Z0-9_]+")


def _suites(names: list[str]) -> str | None:
    for name in names:
        if not _SUITE.fullmatch(name):
            return (
                f"'{name}' is not one of IANA's names, such as "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384; OpenSSL's names are not taken"
            )
    return None


def _protocols(names: list[str]) -> str | None:
    known = (TLS_1_2, TLS_1_3, *OLD_PROTOCOLS)
    for name in names:
        if name not in known:
            return f"'{name}' is not one of {', '.join(known)}"
    if names and not {TLS_1_2, TLS_1_3} & set(names):
        return f"must contain {TLS_1_2} or {TLS_1_3}: older ones are not spoken"
    return None


def _tls_version(text: str) -> str:
    """Return TLSv1.3 for Java's names TLS and SSL, which allow every version of the JVM."""
    canonical = canonical_case(TLS_1_2, TLS_1_3, *_ANY_VERSION)(text)
    return TLS_1_3 if canonical in _ANY_VERSION else canonical


def _store_type(name: str) -> ConfigKey:
    """Return the option for the type of a store."""
    return choice(name, None, STORE_TYPES).about("""
        JKS, PKCS12 or PEM.
        > Leave it: the file shows its type.
        > Differs from JKS: The type of a file is recognised by its first bytes.""")


def _algorithm(text: str) -> str:
    return "" if text.lower() == "none" else canonical_case("https")(text)


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

# Full name -> simple name, which the rest of the code uses.
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

TOKEN_PROVIDER_ADVICE = (
    "tokens of a token endpoint need no class, but kafka.sasl.oauthbearer.token.endpoint.url; "
    "tokens of your own come from a Python callable, "
    "kafka.sasl.oauthbearer.token.provider=package.module:callable. For the clouds' and Strimzi's "
    f"classes, {RECIPES} has recipes"
)
_CREDENTIALS_ADVICE = (
    "kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config, with references such "
    "as ${file:/path:key}"
)
_CHECKED_BY_BROKERS = "leave it out: the brokers check the signature"

SSL_KEYS = [
    optional_text("ssl.truststore.location", takes_references=True).about("""
        File with the trusted authorities, PEM, PKCS12 or JKS, on the driver and every executor. A
        name without a folder is also searched among the files of `spark-submit --files`. Without a
        trust store, the system's authorities are trusted.
        > Set it if the brokers' authority is your own."""),
    secret("ssl.truststore.password").about("""
        Password of the trust store. Without it a JKS file is read, but not checked for changes. PEM
        files have none.
        > Set it for a PKCS12 or JKS file."""),
    secret("ssl.truststore.certificates").about("""
        Trusted certificates as PEM text, instead of a file. Line ends may be blanks or \\n, as
        properties files leave them.
        > Set it if the certificates come as text, such as from a secret."""),
    _store_type("ssl.truststore.type"),
    optional_text("ssl.keystore.location", takes_references=True).about("""
        File with this client's private key and certificate chain: PKCS12, JKS, or PEM with both.
        New connections use a changed file; from the next task on, all do.
        > Set it if the brokers require client certificates."""),
    secret("ssl.keystore.password").about("""
        Password of the key store. PEM files have none.
        > Set it for a PKCS12 or JKS file."""),
    secret("ssl.keystore.key").about("""
        Private key as PEM text (PKCS#8, encrypted or not), instead of a file.
        > Set it with kafka.ssl.keystore.certificate.chain, if both come as text."""),
    secret("ssl.keystore.certificate.chain").about("""
        Certificate chain of the private key, as PEM text.
        > Set it with kafka.ssl.keystore.key."""),
    _store_type("ssl.keystore.type"),
    secret("ssl.key.password").about("""
        Password of the private key. Without it, the key store's is tried.
        > Set it if the key has a password of its own."""),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", "string", "https", one_of("https", ""), _algorithm
    ).about("""
        https: a broker's certificate must name its host. Empty: only the chain is checked.
        librdkafka's none means empty.
        > Empty it only if certificates do not name their brokers."""),
    ConfigKey(
        "ssl.protocol", "string", TLS_1_3, one_of(TLS_1_3, TLS_1_2, *_ANY_VERSION), _tls_version
    ).about("""
        Newest TLS version: TLSv1.3, or TLSv1.2, which forbids 1.3 even if it is enabled. TLS and
        SSL mean TLSv1.3.
        > Set TLSv1.2 only to forbid 1.3."""),
    ConfigKey("ssl.enabled.protocols", "list", [TLS_1_2, TLS_1_3], _protocols).about("""
        Allowed versions. Empty: both. Older versions in the list are ignored.
        > Set one version to forbid the other."""),
    ConfigKey("ssl.cipher.suites", "list", [], _suites).about("""
        Allowed cipher suites, by IANA's names as in Java, such as
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384. Empty: OpenSSL's defaults.
        > Set it only if a policy requires it."""),
    java_class(
        "ssl.engine.factory.class", ENGINE_FACTORIES, "the other kafka.ssl.* options"
    ).about("""
        Only Kafka's own DefaultSslEngineFactory is accepted. It changes nothing.
        > Leave it out."""),
]


PLAIN, OAUTHBEARER, GSSAPI, AWS_MSK_IAM = "PLAIN", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI, AWS_MSK_IAM)
PASSWORD_MECHANISMS = (PLAIN, *SCRAM)

SASL_KEYS = [
    choice("sasl.mechanism", GSSAPI, MECHANISMS).about("""
        PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI (Kerberos) or AWS_MSK_IAM.
        > Set the mechanism of your login, unless it is Kerberos."""),
    secret("sasl.jaas.config").about("""
        Credentials as Java's JAAS entry, e.g.
        `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice"
        password="${env:KAFKA_PASSWORD}";`. Databricks' names (kafkashaded.org.apache.kafka…) are
        accepted, too.
        > Set it for Kerberos, or if you have such a text."""),
    optional_text("sasl.username", takes_references=True).about("""
        User name, instead of kafka.sasl.jaas.config. The option's name is librdkafka's; Java has no
        such option.
        > Set it with PLAIN or SCRAM."""),
    secret("sasl.password").about("""
        Password of kafka.sasl.username.
        > Set it with the user name."""),
    optional_text("sasl.kerberos.service.name", takes_references=True).about("""
        First part of the brokers' Kerberos principal, usually kafka.
        > Set it with GSSAPI, here or as serviceName in kafka.sasl.jaas.config."""),
    ConfigKey("sasl.kerberos.min.time.before.relogin", "long", 60_000, at_least(0)).about("""
        Shortest time in milliseconds between two Kerberos logins.
        > Decrease it if tickets expire within minutes."""),
    java_class("sasl.client.callback.handler.class", CLIENT_HANDLERS, _CREDENTIALS_ADVICE).about("""
        Only software.amazon.msk.auth.iam.IAMClientCallbackHandler and
        IAMOAuthBearerLoginCallbackHandler are accepted.
        > Leave it out, except for the job kafka_to_kafka, whose reader in the JVM needs it."""),
    java_class("sasl.login.callback.handler.class", LOGIN_HANDLERS, TOKEN_PROVIDER_ADVICE).about("""
        Only Kafka's OAuthBearerLoginCallbackHandler, by its old and new names, and MSK's
        IAMOAuthBearerLoginCallbackHandler are accepted. MSK's handler selects AWS_MSK_IAM.
        > Leave it out, except for the job kafka_to_kafka, whose reader in the JVM needs it."""),
    java_class("sasl.login.class", LOGIN_CLASSES, "leave it out").about("""
        Only Kafka's own login classes are accepted. They change nothing.
        > Leave it out."""),
    ConfigKey("sasl.login.refresh.window.factor", "double", 0.8, between(0.5, 1.0)).about("""
        Part of an OAUTHBEARER token's life after which it is renewed.
        > Decrease it if tokens are withdrawn before they expire."""),
    ConfigKey("sasl.login.refresh.window.jitter", "double", 0.05, between(0.0, 0.25)).about("""
        Largest random delay of the renewal, as a part of the token's life.
        > Increase it if many processes renew at the same moment."""),
    ConfigKey("sasl.login.refresh.min.period.seconds", "short", 60, between(0, 900)).about("""
        Shortest time between two renewals. If this and kafka.sasl.login.refresh.buffer.seconds
        together exceed the token's remaining life, both are ignored.
        > Increase it if the provider limits requests."""),
    ConfigKey("sasl.login.refresh.buffer.seconds", "short", 300, between(0, 3600)).about("""
        Latest renewal, in seconds before the token expires.
        > Increase it if the provider may be unavailable for longer."""),
    ConfigKey("sasl.login.connect.timeout.ms", "int", None, at_least(1)).about("""
        Time limit for a connection to the token endpoint; 10 s if it is not set.
        > Increase it for a slow network.
        > Differs: Java waits for as long as the operating system does."""),
    ConfigKey("sasl.login.read.timeout.ms", "int", None, at_least(1)).about("""
        Time limit for the complete answer of the token endpoint; 10 s if it is not set.
        > Increase it for a slow provider.
        > Differs: Java waits without limit."""),
    ConfigKey("sasl.login.retry.backoff.ms", "long", 100, at_least(0)).about("""
        Pause before the token endpoint is asked again after a temporary error. It doubles with each
        error.
        > Increase it if the provider limits requests."""),
    ConfigKey("sasl.login.retry.backoff.max.ms", "long", 10_000, at_least(0)).about("""
        Time limit of all attempts at the token endpoint, and the longest pause.
        > Increase it if the provider may be unavailable for longer."""),
]


_ALGORITHMS = ("RS256", "ES256")
_SCHEMES = ("https://", "http://", "file:")
_ASSERTION = "sasl.oauthbearer.assertion."


def _url(text: str) -> str | None:
    return (
        None if text.lower().startswith(_SCHEMES) else "must begin with https://, http:// or file:"
    )


def _entry_point(text: str) -> str | None:
    module, _, name = text.partition(":")
    return None if module and name else "must be package.module:callable"


OAUTH_KEYS = [
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        "string",
        validator=_url,
        takes_references=True,
        hides_value=True,  # a URL may hold a password
    ).about("""
        The provider's token endpoint, or file:/path of a file that holds a token.
        > Set it with OAUTHBEARER, unless your own callable gets tokens."""),
    optional_text("sasl.oauthbearer.client.credentials.client.id", takes_references=True).about("""
        Client id at the provider. It overrides clientId in kafka.sasl.jaas.config.
        > Set it if the provider grants tokens for client credentials."""),
    secret("sasl.oauthbearer.client.credentials.client.secret").about("""
        Secret of the client id. It overrides clientSecret in kafka.sasl.jaas.config.
        > Set it with the client id."""),
    ConfigKey("sasl.oauthbearer.scope", "string", takes_references=True).about("""
        Scopes to request, separated by blanks. It overrides scope in kafka.sasl.jaas.config.
        > Set it if the provider requires one."""),
    ConfigKey("sasl.oauthbearer.token.provider", "string", None, _entry_point).about("""
        Your own Python callable that returns tokens, as `package.module:callable`. It replaces the
        other token options. Java has no such option.
        > Set it if no other option gets your provider's tokens."""),
    flag("sasl.oauthbearer.header.urlencode", False).about("""
        Encodes id and secret for URLs in the Authorization header (RFC 6749).
        > Set it if your provider requires it."""),
    java_class(
        "sasl.oauthbearer.jwt.retriever.class", JWT_RETRIEVERS, TOKEN_PROVIDER_ADVICE, RETRIEVERS[0]
    ).about("""
        Request for a token: ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or
        FileJwtRetriever. DefaultJwtRetriever chooses FileJwtRetriever for a file: URL, else
        ClientCredentialsJwtRetriever.
        > Set JwtBearerJwtRetriever if your provider grants tokens for an assertion (RFC 7523).
        """),
    java_class(
        "sasl.oauthbearer.jwt.validator.class", JWT_VALIDATORS, _CHECKED_BY_BROKERS, VALIDATORS[0]
    ).about("""
        Check of a token before it is sent: DefaultJwtValidator or ClientJwtValidator. Only brokers
        check the signature.
        > Leave it: both do the same here."""),
    ConfigKey("sasl.oauthbearer.scope.claim.name", "string", "scope", non_empty).about("""
        Claim with a token's scopes.
        > Set it if tokens use another claim."""),
    ConfigKey("sasl.oauthbearer.sub.claim.name", "string", "sub", non_empty).about("""
        Claim with a token's principal.
        > Set it if tokens use another claim."""),
    choice(f"{_ASSERTION}algorithm", "RS256", _ALGORITHMS).about("""
        Signature of an assertion: RS256 or ES256.
        > Set ES256 for an elliptic-curve key."""),
    optional_text(f"{_ASSERTION}claim.aud", takes_references=True).about("""
        Claim aud, the audience of an assertion.
        > Set it to sign assertions."""),
    ConfigKey(f"{_ASSERTION}claim.exp.seconds", "int", 300, between(0, 86_400)).about("""
        Validity of an assertion in seconds.
        > Change it if your provider limits it."""),
    optional_text(f"{_ASSERTION}claim.iss", takes_references=True).about("""
        Claim iss, the issuer of an assertion. With ClientCredentialsJwtRetriever, a signed
        assertion then replaces the client secret.
        > Set it to sign assertions."""),
    flag(f"{_ASSERTION}claim.jti.include", False).about("""
        Adds a unique id, claim jti, to each assertion.
        > Set it if your provider requires it."""),
    ConfigKey(f"{_ASSERTION}claim.nbf.seconds", "int", 60, between(0, 3_600)).about("""
        Seconds before now from which an assertion is valid.
        > Increase it if clocks differ by more."""),
    optional_text(f"{_ASSERTION}claim.sub", takes_references=True).about("""
        Claim sub, the subject of an assertion.
        > Set it to sign assertions."""),
    optional_text(f"{_ASSERTION}file", takes_references=True).about("""
        File with an assertion from another program. It overrides the other assertion options. A
        changed file is read again.
        > Set it if another program makes assertions."""),
    optional_text(f"{_ASSERTION}private.key.file", takes_references=True).about("""
        PEM file with the private key that signs assertions. A changed file is read again.
        > Set it to sign assertions."""),
    secret(f"{_ASSERTION}private.key.passphrase").about("""
        Password of that private key.
        > Set it if the key is encrypted."""),
    optional_text(f"{_ASSERTION}template.file", takes_references=True).about("""
        JSON file with more headers and claims for assertions.
        > Set it if your provider requires more."""),
]


PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
_HORTONWORKS = "PLAINTEXTSASL"


def _protocol(text: str) -> str | None:
    if text.upper() == _HORTONWORKS:
        return f"{_HORTONWORKS} is Hortonworks' name of SASL_PLAINTEXT: write that"
    return one_of(*SECURITY_PROTOCOLS)(text)


_PROTOCOL = choice("security.protocol", PLAINTEXT, SECURITY_PROTOCOLS, _protocol).about("""
    PLAINTEXT, SSL (which is TLS), SASL_PLAINTEXT or SASL_SSL. The last two add a login by SASL.
    > Set the protocol of the brokers' listener.""")

PROTOCOL_CONFIG = ConfigDef(KAFKA_PREFIX, _PROTOCOL)
SSL_CONFIG = ConfigDef(KAFKA_PREFIX, *SSL_KEYS)
RESOLVED_SSL_CONFIG = ConfigDef(
    KAFKA_PREFIX, *(key._replace(takes_references=False) for key in SSL_KEYS)
)
"""``SSL_CONFIG`` for resolved texts: a text that looks like a reference is taken literally."""
SASL_CONFIG = ConfigDef(KAFKA_PREFIX, *SASL_KEYS, *OAUTH_KEYS)
SECURITY_CONFIG = ConfigDef(KAFKA_PREFIX, _PROTOCOL, *SSL_KEYS, *SASL_KEYS, *OAUTH_KEYS)

# Kafka gives these options the type of a password; their content is public.
_PUBLIC = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")
SECRET_KEYS = frozenset(
    key.name
    for key in SECURITY_CONFIG.keys.values()
    if key.type == "password" and key.name not in _PUBLIC
)
"""Keys, without ``kafka.``, whose values are secret."""
