"""Bearer tokens: claims, one token that is kept and renewed in its own thread, and assertions.

Claims are read without a key: only the brokers check signatures. As in Java's default validator, a
token must be a JWT of three parts whose claims hold ``exp`` and the subject. An opaque token from
an endpoint or a file is rejected, because its expiry is unknown. A token provider may return an
opaque token with its expiry.

The thread lives while the token is used, and ends if it was not used since it was fetched. The
thread is a loop around ``step``, which tests call without a thread. Only times decide when a token
is renewed::

    after      | next renewal
    -----------+---------------------------------------------------------------------------
    obtained   | window.factor (and up to window.jitter more) of its life; not within
               | min.period of now, nor within buffer of its end, if there is room for both
    failed     | retry.backoff.max.ms later; the old token stays in use until it expires
    not used   | never: no conversation has begun since the last attempt
    used       | unchanged; now, if the renewal was dropped for lack of use
    wanted     | now, unless an attempt has just failed

Times are milliseconds since 1970-01-01 UTC, as in tokens.

An attempt is repeated while its error is retriable, with pauses that double, and for a limited
time. Unlike Kafka, the last pause is not shortened: a retry that would come after
``retry.backoff.max.ms`` is dropped, so that the error comes before that time.

An assertion is a JWT that this client signs, or that another program writes to a file. Headers and
claims come in three layers, of which a later layer takes precedence: the options, the template file
(JSON with ``header`` and ``payload``), and the time-dependent claims. All files are read for each
assertion, so the next assertion uses a replaced key.

Source: ``ClientJwtValidator``, ``ClaimValidationUtils``, ``SerializedJwt`` of Kafka; RFC 7519.

Source: ``Retry`` of Kafka; ``ExpiringCredentialRefreshingLogin`` of Kafka, which renews forever,
and repeats a failed login after 10 s.

Source: KIP-1139, KIP-1258; ``DefaultAssertionCreator``, ``LayeredAssertionJwtTemplate``,
``DynamicAssertionJwtTemplate`` of Kafka; RFC 7515, RFC 7518. Java's ES256 signatures have the X.509
form, which RFC 7518 does not allow; this module uses the RFC's form.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from spark_kafka_sink.base.clock import Clock, RandomSource, wait_seconds
from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError, warn
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import AssertionConfig, LoginConfig, OAuthConfig
from spark_kafka_sink.security import key_formats
from spark_kafka_sink.security.key_formats import DamagedStoreError
from spark_kafka_sink.security.mechanisms import encode_utf8
from spark_kafka_sink.security.references import read_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_NEVER = 1e14
"""Seconds since 1970: three million years."""


class Token(NamedTuple):
    """A token to send.

    value: its text
    issued_at_ms, expires_at_ms: since 1970-01-01 UTC
    """

    value: Secret
    issued_at_ms: int | None
    expires_at_ms: int

    def is_valid(self, timestamp_ms: int) -> bool:
        return timestamp_ms < self.expires_at_ms


def token_of_jwt(text: str, oauth: OAuthConfig, source: str) -> Token:
    """Return the token of ``text``, which must be a JWT.

    source: its origin, for messages, which show nothing of the token

    Raises AuthenticationError.
    """
    value = text.strip()
    claims = _claims(value, source)
    expires_at = _seconds(claims, "exp", source)
    if expires_at is None:
        raise _wrong(source, "has no claim 'exp', so its expiry is unknown")
    subject = claims.get(oauth.sub_claim_name)
    if not isinstance(subject, str) or not subject.strip():
        raise _wrong(
            source,
            f"has no text in claim '{oauth.sub_claim_name}'; "
            "kafka.sasl.oauthbearer.sub.claim.name names the claim that holds the principal",
        )
    _check_scopes(claims.get(oauth.scope_claim_name), oauth.scope_claim_name, source)
    issued_at = _seconds(claims, "iat", source)
    return Token(
        Secret(value),
        None if issued_at is None else int(issued_at * 1000),
        int(expires_at * 1000),
    )


def _claims(text: str, source: str) -> Mapping[str, object]:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.strip() for part in parts):
        raise _wrong(
            source,
            "is not a JWT of three parts. A token of another kind must come from "
            "kafka.sasl.oauthbearer.token.provider, together with its expiry",
        )
    try:
        payload = base64.b64decode(parts[1].encode("ascii") + b"==", altchars=b"-_", validate=False)
        claims = json.loads(payload)
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        # Omit the cause, which quotes the claims.
        raise _wrong(source, "is not a JWT: its second part is not JSON in base64") from None
    if not isinstance(claims, dict):
        raise _wrong(source, "is not a JWT: its claims are not a JSON object")
    return claims


def _seconds(claims: Mapping[str, object], name: str, source: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _NEVER:
        raise _wrong(source, f"has a claim '{name}' that is not a number of seconds since 1970")
    return float(value)


def _check_scopes(scopes: object, name: str, source: str) -> None:
    texts = [scopes] if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    stripped = [text.strip() if isinstance(text, str) else "" for text in texts]
    if not all(stripped) or len(set(stripped)) < len(stripped):
        raise _wrong(source, f"has an empty or repeated scope in claim '{name}'")


def _wrong(source: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the token of {source} {what}", code="AUTH-015")


# --- retries -------------------------------------------------------------------------------------

T = TypeVar("T")


class RetryTimer(NamedTuple):
    """Time as a dependency.

    pause: waits for milliseconds; raises CredentialsUnavailableError after ``close``
    """

    clock: Clock
    pause: Callable[[int], None]
    close: Callable[[], None] = lambda: None


def with_retries(
    attempt: Callable[[int], T], config: LoginConfig, timer: RetryTimer, timeout_ms: int
) -> T:
    """Return the result of ``attempt``, which is called with the remaining milliseconds.

    Retries after CredentialsUnavailableError only, and raises the last such error when time is up.
    """
    start_ms = timer.clock.now_ms()
    limit_ms = start_ms + min(config.retry_backoff_max_ms, timeout_ms)
    attempts = 0
    while True:
        attempts += 1
        try:
            return attempt(start_ms + timeout_ms - timer.clock.now_ms())
        except CredentialsUnavailableError as error:
            now_ms = timer.clock.now_ms()
            pause_ms = max(config.retry_backoff_ms * 2 ** (attempts - 1), 1)
            if now_ms + pause_ms > limit_ms:
                times = "once" if attempts == 1 else f"{attempts} times in {now_ms - start_ms} ms"
                raise CredentialsUnavailableError(
                    f"{error} (tried {times})", code=error.code
                ) from None
            timer.pause(pause_ms)


# --- when a token is renewed ---------------------------------------------------------------------


class RefreshSchedule:
    """The time of the next request for a token. next_ms: None if no token is needed"""

    def __init__(self, config: LoginConfig, rng: RandomSource) -> None:
        self._config = config
        self._rng = rng
        self.next_ms: int | None = None
        self._failed_at_ms: int | None = None
        self._is_used = False

    def on_obtained(self, token: Token, now_ms: int) -> None:
        self._failed_at_ms = None
        self._is_used = False
        self.next_ms = self._refresh_at(token, now_ms)

    def on_failed(self, now_ms: int) -> None:
        self._failed_at_ms = now_ms
        self.next_ms = now_ms + self._config.retry_backoff_max_ms

    def on_used(self, now_ms: int) -> None:
        """Note a conversation with the token; schedule a renewal that lack of use had dropped."""
        self._is_used = True
        if self.next_ms is None:
            self.next_ms = now_ms

    def on_wanted(self, now_ms: int) -> None:
        """Note that a conversation cannot begin, because there is no token."""
        self._is_used = True
        after_failure = None
        if self._failed_at_ms is not None:
            after_failure = self._failed_at_ms + self._config.retry_backoff_max_ms
        self.next_ms = now_ms if after_failure is None else max(now_ms, after_failure)

    def is_due(self, now_ms: int) -> bool:
        """Return True if it is time for a request.

        Each use permits one attempt, successful or not. Without a new use, the renewal is dropped.
        """
        if self.next_ms is None or now_ms < self.next_ms:
            return False
        was_used, self._is_used = self._is_used, False
        if not was_used:
            self.next_ms = None
            self._failed_at_ms = None
        return was_used

    def _refresh_at(self, token: Token, now_ms: int) -> int:
        config, expires_ms = self._config, token.expires_at_ms
        part = config.refresh_window_factor + config.refresh_window_jitter * self._rng.random()
        least_ms = now_ms + 1000 * config.refresh_min_period_seconds
        most_ms = expires_ms - 1000 * config.refresh_buffer_seconds
        if least_ms > most_ms:
            return now_ms + int(max(expires_ms - now_ms, 0) * part)
        starts_ms = now_ms if token.issued_at_ms is None else token.issued_at_ms
        proposed_ms = starts_ms + int((expires_ms - starts_ms) * part)
        return max(min(proposed_ms, most_ms), least_ms)


# --- the keeper ----------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

REFRESH_TIMEOUT_MS = 60_000
"""Time limit of one renewal."""
_SHORTEST_SLEEP_MS = 100
LONGEST_SLEEP_MS = 30_000
"""Longest time between two looks at the clock, which jumps when a suspended machine resumes."""

Fetch = Callable[[int], Token]
"""Returns a new token within so many milliseconds. Raises AuthenticationError."""


class TokenKeeper:
    """The token of one login. Thread-safe. has_thread: False if the caller calls ``step``"""

    def __init__(
        self,
        fetch: Fetch,
        config: LoginConfig,
        clock: Clock,
        rng: RandomSource,
        has_thread: bool = True,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._has_thread = has_thread
        self._schedule = RefreshSchedule(config, rng)
        self._token: Token | None = None
        self._last_error: AuthenticationError | None = None
        self._last_request = (clock.timestamp_ms(), clock.now_ms())
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._wake = threading.Event()

    @property
    def next_refresh_ms(self) -> int | None:
        """The time of the next renewal, since 1970-01-01 UTC; None while the token is unused."""
        with self._lock:
            return self._schedule.next_ms

    def prepare(self, timeout_ms: int) -> None:
        """Wait until there is a token that has not expired.

        Raises AuthenticationError; CredentialsUnavailableError if a retry may succeed.
        """
        start_ms = self._clock.now_ms()
        if self._use() is not None:
            return
        if not self._fetching.acquire(timeout=wait_seconds(timeout_ms)):
            raise self._missing()
        try:
            # Another thread may have fetched the token meanwhile.
            if self._use() is None:
                self._obtain(max(timeout_ms - (self._clock.now_ms() - start_ms), 1))
                self._use()
        finally:
            self._fetching.release()

    def token(self) -> Secret:
        """Return the token without waiting; the thread fetches a missing token.

        Raises CredentialsUnavailableError while there is no token, and AuthenticationError if the
        last attempt was rejected.
        """
        token = self._use()
        if token is not None:
            return token.value
        with self._lock:
            self._schedule.on_wanted(self._now_ms())
            self._ensure_thread()
        self._wake.set()
        raise self._missing()

    def step(self) -> int | None:
        """Renew the token if it is time, and return the milliseconds until the next step.

        None if the token is unused, or the keeper is closed; then the thread ends.
        """
        with self._lock:
            is_due = not self._is_closed and self._schedule.is_due(self._now_ms())
        if is_due:
            self._renew()
        with self._lock:
            next_ms = self._schedule.next_ms
            if self._is_closed or next_ms is None:
                self._thread = None
                return None
            left_ms = next_ms - self._now_ms()
            return min(max(left_ms, _SHORTEST_SLEEP_MS), LONGEST_SLEEP_MS)

    def _renew(self) -> None:
        """Renew the token, unless ``prepare`` does so in another thread."""
        if not self._fetching.acquire(blocking=False):
            return
        try:
            self._obtain(REFRESH_TIMEOUT_MS)
        except AuthenticationError as error:
            warn(logger, error.code, f"The token cannot be renewed now, which is retried: {error}")
        finally:
            self._fetching.release()

    def close(self) -> None:
        """Stop renewing. The present token stays usable."""
        with self._lock:
            self._is_closed = True
        self._wake.set()

    def _use(self) -> Token | None:
        """Return the token if it has not expired. Its use keeps the thread alive."""
        with self._lock:
            now_ms = self._now_ms()
            if self._token is None or not self._token.is_valid(now_ms):
                return None
            self._schedule.on_used(now_ms)
            self._ensure_thread()
            return self._token

    def _obtain(self, timeout_ms: int) -> None:
        """Fetch a token. The caller holds ``_fetching``."""
        try:
            token = self._fetch(timeout_ms)
        except AuthenticationError as error:
            with self._lock:
                self._last_error = error
                self._schedule.on_failed(self._note_request())
            raise
        with self._lock:
            self._token, self._last_error = token, None
            self._schedule.on_obtained(token, self._note_request())

    def _note_request(self) -> int:
        """Return the time of day, from which ``_now_ms`` goes on. The caller holds the lock."""
        self._last_request = (self._clock.timestamp_ms(), self._clock.now_ms())
        return self._last_request[0]

    def _now_ms(self) -> int:
        """Return the time of day, or a later time if the clock was set back since the last request.

        Otherwise a retry or a renewal would wait until the clock has reached that time again. The
        monotonic clock alone is not enough: it stands still while the machine is suspended. The
        caller holds the lock.
        """
        timestamp_ms, monotonic_ms = self._last_request
        return max(self._clock.timestamp_ms(), timestamp_ms + self._clock.now_ms() - monotonic_ms)

    def _missing(self) -> AuthenticationError:
        with self._lock:
            error, token = self._last_error, self._token
        had = "there is no token yet" if token is None else "the token has expired"
        if error is None:
            return CredentialsUnavailableError(
                f"{had}, and a new one is being fetched", code="AUTH-012"
            )
        text = f"{had}, and a new one could not be fetched: {error}"
        if isinstance(error, CredentialsUnavailableError):
            return CredentialsUnavailableError(text, code=error.code)
        return AuthenticationError(text, code=error.code)

    def _ensure_thread(self) -> None:
        """Start the thread if necessary. The caller holds the lock."""
        if not self._has_thread or self._is_closed:
            return
        # In a forked process, the parent's thread is not alive.
        if self._thread is None or not self._thread.is_alive():
            name = "pykafka-sink-token"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (wait_ms := self.step()) is not None:
            self._wake.wait(wait_seconds(wait_ms))
            self._wake.clear()


# --- assertions ----------------------------------------------------------------------------------

PREFIX = "kafka.sasl.oauthbearer.assertion."
_KEY_FILE = f"{PREFIX}private.key.file"
_PASSPHRASE = f"{PREFIX}private.key.passphrase"
_TEMPLATE = f"{PREFIX}template.file"
_NUMBER_BYTES = 32


def assertion(config: AssertionConfig, timestamp_ms: int) -> Secret:
    """Return a new assertion, or the content of the assertion's file. Raises AuthenticationError.

    config: with its references resolved
    """
    if config.file is not None:
        return Secret(read_text(config.file, f"{PREFIX}file").strip())
    now_seconds = timestamp_ms // 1000
    template = _template(config.template_file)
    header = {**template["header"], "alg": config.algorithm, "typ": "JWT"}
    claims = {"aud": config.claim_aud, "iss": config.claim_iss, "sub": config.claim_sub}
    payload = {
        **{name: value for name, value in claims.items() if value is not None},
        **template["payload"],
        "iat": now_seconds,
        "exp": now_seconds + config.claim_exp_seconds,
        "nbf": now_seconds - config.claim_nbf_seconds,
    }
    if config.claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    content = f"{_encoded_json(header)}.{_encoded_json(payload)}"
    return Secret(f"{content}.{_base64(_signature(config, content.encode('ascii')))}")


def _template(location: str | None) -> dict[str, dict[str, Any]]:
    if location is None:
        return {"header": {}, "payload": {}}
    try:
        parts = json.loads(read_text(location, _TEMPLATE))
    except (ValueError, RecursionError):
        raise AuthenticationError(f"{_TEMPLATE}: {location} is not JSON", code="AUTH-019") from None
    header, payload = (
        parts.get(name, {}) if isinstance(parts, dict) else None for name in ("header", "payload")
    )
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise AuthenticationError(
            f'{_TEMPLATE}: {location} must be a JSON object with "header" and "payload", two '
            "objects",
            code="AUTH-019",
        )
    return {"header": header, "payload": payload}


def _signature(config: AssertionConfig, content: bytes) -> bytes:
    # Imported here, as below, because only signed assertions need the package cryptography.
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    if config.private_key_file is None:
        raise AuthenticationError(
            f"{_KEY_FILE} is missing: the key that signs the assertion", code="AUTH-005"
        )
    key = _private_key(config.private_key_file, config.private_key_passphrase)
    if config.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), SHA256())
    if config.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise AuthenticationError(
                f"{_KEY_FILE}: {config.private_key_file} has a key on the curve {key.curve.name}, "
                "but ES256 needs P-256",
                code="AUTH-019",
            )
        r, s = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
        return r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
    wanted = "an RSA key" if config.algorithm == "RS256" else "an EC key on P-256"
    raise AuthenticationError(
        f"{PREFIX}algorithm={config.algorithm} needs {wanted}, which is not what "
        f"{config.private_key_file} holds ({_KEY_FILE})",
        code="AUTH-019",
    )


def _private_key(location: str, passphrase: Secret | None) -> PrivateKeyTypes:
    """Return the key from PEM or, as Java does, from bare PKCS#8 in base64."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        load_der_private_key,
        load_pem_private_key,
    )

    text = read_text(location, _KEY_FILE)
    password = None if passphrase is None else encode_utf8(passphrase.reveal(), _PASSPHRASE)
    try:
        if "-----BEGIN" in text:
            key_formats.check_pem_iterations(text)
            return load_pem_private_key(text.encode(), password)
        data = base64.b64decode(text)
        key_formats.check_iterations(data)
        return load_der_private_key(data, password)
    except TypeError:
        what = (
            f"is encrypted, and {_PASSPHRASE} is missing"
            if passphrase is None
            else f"is not encrypted, but {_PASSPHRASE} is given"
        )
    except DamagedStoreError as error:
        what = f"cannot be read: {error}"
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        # Omit the cause: a library's text must not show a key.
        what = "cannot be read: it must be a private key in PEM" + (
            "" if passphrase is None else f", and {_PASSPHRASE} its password"
        )
    raise AuthenticationError(f"{_KEY_FILE}: {location} {what}", code="AUTH-019") from None


def _encoded_json(value: object) -> str:
    return _base64(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
