"""How connections are secured, as it was asked for: TLS, SASL, and where credentials come from.

Texts may hold references (``${env:NAME}``, ``${file:/path:key}``, ``${dir:/path:file}``); they are
resolved where and when they are needed, in the process that connects.

Source: ``SslConfigs``, ``SaslConfigs`` of Kafka 4.3.
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """A trust store or a key store; Kafka's ``ssl.truststore.*`` or ``ssl.keystore.*``.

    location: of a file; its type is recognised by its content
    certificates: PEM text in the option itself (of a key store: its chain), instead of a location
    key: PEM text of the private key; of a key store only, with ``certificates``
    key_password: of the private key; of a key store only. Kafka's ``ssl.key.password``
    """

    location: str | None = None
    password: Secret | None = None
    type: str | None = None
    certificates: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class SslConfig:
    """``ssl.*``: of the connections to brokers, or, out of JAAS options, to a token endpoint.

    protocol: TLSv1.3, or TLSv1.2, which forbids 1.3; enabled_protocols: empty stands for both
    cipher_suites: IANA's names; empty stands for all that OpenSSL has by default
    checks_host_name: whether ``ssl.endpoint.identification.algorithm`` is https
    """

    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    checks_host_name: bool = True
    truststore: StoreConfig = StoreConfig()
    keystore: StoreConfig = StoreConfig()


@dataclass(frozen=True, slots=True)
class LoginConfig:
    """``sasl.login.*``: when a token is renewed, and how long asking for one may take."""

    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period_seconds: int = 60
    refresh_buffer_seconds: int = 300
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class KerberosConfig:
    """``sasl.kerberos.*`` that mean something outside a JVM."""

    service_name: str | None = None
    min_time_before_relogin_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class AssertionConfig:
    """``sasl.oauthbearer.assertion.*``: a JWT that this client signs (KIP-1139, KIP-1258)."""

    algorithm: str = "RS256"
    claim_aud: str | None = None
    claim_exp_seconds: int = 300
    claim_iss: str | None = None
    claim_jti_include: bool = False
    claim_nbf_seconds: int = 60
    claim_sub: str | None = None
    file: str | None = None
    private_key_file: str | None = None
    private_key_passphrase: Secret | None = None
    template_file: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """``sasl.oauthbearer.*``.

    token_provider: ``package.module:callable`` of the user's own, instead of everything else;
        the sink's option ``kafka.sasl.oauthbearer.token.provider``
    retriever: the simple name of Java's class (``DefaultJwtRetriever``, ``FileJwtRetriever``,
        ``ClientCredentialsJwtRetriever``, ``JwtBearerJwtRetriever``)
    """

    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    header_urlencode: bool = False
    retriever: str = "DefaultJwtRetriever"
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    assertion: AssertionConfig = AssertionConfig()
    token_provider: str | None = None


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """``sasl.*``.

    mechanism: as Java names it: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI,
        AWS_MSK_IAM
    jaas_config: ``sasl.jaas.config`` as it was given
    username, password: this sink's plain options, instead of ``jaas_config``
    """

    mechanism: str
    jaas_config: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    login: LoginConfig = LoginConfig()
    kerberos: KerberosConfig = KerberosConfig()
    oauth: OAuthConfig = OAuthConfig()


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """``security.protocol`` and what belongs to it; None where the protocol does not use it."""

    protocol: str = PLAINTEXT
    ssl: SslConfig | None = None
    sasl: SaslConfig | None = None
