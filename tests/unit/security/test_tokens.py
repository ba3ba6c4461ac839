"""Which source of a token wins, what a token must hold, and how one is renewed."""

import contextlib
import queue
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import (
    AssertionConfig,
    LoginConfig,
    OAuthConfig,
    SaslConfig,
)
from spark_kafka_sink.security.oauth import OPTION, provided_token, sends_in_clear
from spark_kafka_sink.security.oauth_endpoint import (
    TokenSource,
    overridden_options,
    token_source_of,
)
from spark_kafka_sink.security.oauth_tokens import (
    LONGEST_SLEEP_MS,
    RefreshSchedule,
    RetryTimer,
    Token,
    TokenKeeper,
    token_of_jwt,
    with_retries,
)
from spark_kafka_sink.security.security import check
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.tables import each_row
from tests.unit.security.token_endpoints import MODULE, first_message, jwt, jwt_of, login_for
from tests.unit.simulated_time import START_MS, Chance, SimulatedClock

URL = "https://issuer.example/token"
NAMES = OAuthConfig()
HOUR_MS = 3_600_000


def oauth_config(jaas=None, **oauth):
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=None if jaas is None else Secret(f"{MODULE} required {jaas};"),
        oauth=OAuthConfig(**oauth),
    )


CLIENT = {"client_id": "app", "client_secret": Secret("S3CRET")}
CREDENTIALS = "ClientCredentialsJwtRetriever"
OF_PLAIN = Secret("org.apache.kafka.common.security.plain.PlainLoginModule required;")


def with_url(jaas=None, **oauth):
    return oauth_config(jaas, **{"token_endpoint_url": URL, **oauth})


@each_row(
    ("oauth", "source"),
    [
        ({}, TokenSource.SECRET),
        ({"token_endpoint_url": "file:/a"}, TokenSource.FILE),
        ({"token_endpoint_url": " FILE:///a"}, TokenSource.FILE),
        ({"retriever": "FileJwtRetriever"}, TokenSource.FILE),
        ({"retriever": "JwtBearerJwtRetriever"}, TokenSource.JWT_BEARER),
        ({"retriever": "ClientCredentialsJwtRetriever"}, TokenSource.SECRET),
        ({"assertion": AssertionConfig(claim_iss="a")}, TokenSource.CLIENT_ASSERTION),
        ({"assertion": AssertionConfig(file="/a")}, TokenSource.CLIENT_ASSERTION),
        ({"token_provider": "a:b"}, TokenSource.PROVIDER),
    ],
)
def test_which_source_wins(oauth, source):
    assert token_source_of(OAuthConfig(**{"token_endpoint_url": URL, **oauth})) is source


def test_the_losers_are_told():
    own = AssertionConfig(file="/a", claim_iss="b")
    oauth = OAuthConfig(token_endpoint_url=URL, assertion=own, **CLIENT)
    told = overridden_options(oauth, {"clientId": "x", "clientSecret": "S3CRET"})
    assert "S3CRET" not in str(told)
    losers = ("over clientId in", "over clientSecret in", "over kafka.sasl.oauthbearer.assertion")
    for sentence, words in zip(told, (*losers, "place of the client's secret"), strict=True):
        assert words in sentence
    provider = OAuthConfig(token_endpoint_url=URL, token_provider="a:b")
    assert "token.provider wins over" in overridden_options(provider, {})[0]
    assert overridden_options(OAuthConfig(token_endpoint_url=URL), {"clientId": "a"}) == []


@each_row(
    ("url", "options", "expected"),
    [
        ("http://issuer.example/token", {}, True),
        (URL, {}, False),
        ("http://127.0.0.1:8080/token", {}, False),
        ("file:/a", {}, False),
        ("http://issuer.example", {"token_provider": "a:b"}, False),
    ],
)
def test_credentials_without_tls_deserve_a_warning(url, options, expected):
    assert sends_in_clear(OAuthConfig(token_endpoint_url=url, **options)) is expected


@each_row(
    "config",
    [
        with_url(**CLIENT),
        with_url('clientId="a" clientSecret="b"'),
        with_url('clientSecret="${env:X}"', client_id="a"),
        with_url(token_endpoint_url="file:/a/b"),
        with_url(token_endpoint_url="${env:URL}"),
        oauth_config('extension_a="${env:A}"', token_provider="a:b"),
        with_url('unsecuredLoginStringClaim_sub="a"', **CLIENT),
        replace(with_url(), jaas_config=Secret("${env:JAAS}")),
    ],
)
def test_what_is_complete(config):
    check(config)


@each_row(
    ("config", "message"),
    [
        (oauth_config(), "Set kafka.sasl.oauthbearer.token.endpoint"),
        (oauth_config('unsecuredLoginStringClaim_sub="S3CRET"'), "unsecured tokens (unsecured"),
        (with_url(), "client.credentials.client.id (or clientId"),
        (with_url('clientId="a"'), "client.credentials.client.secret (or clientSecret"),
        (with_url(token_endpoint_url="file:/a", retriever=CREDENTIALS), "is a file:, but"),
        (with_url(retriever="FileJwtRetriever"), "begin with file: for FileJwtRetriever"),
        (with_url(token_endpoint_url="file:"), "names no file"),
        (with_url(token_endpoint_url="file://[a"), "names no file"),
        (with_url('extension_auth="S3CRET"', **CLIENT), "begins with 'extension_'"),
        (with_url('ssl.truststore.type="XYZ"', **CLIENT), "for the token endpoint"),
        (with_url("ssl.nonsense=x", **CLIENT), "begins with 'ssl.' is not known"),
        (replace(with_url(), jaas_config=OF_PLAIN), "PlainLoginModule is that of PLAIN, but"),
    ],
)
def test_what_is_missing_or_contradicts(config, message):
    with pytest.raises(ConfigError) as raised:
        check(config)
    assert message in str(raised.value)
    assert "S3CRET" not in str(raised.value)


NO_NUMBER = "that is not a number"
NO_SUBJECT = "has no text in claim 'sub'"
NO_SCOPE = "empty or repeated scope"


class TestToken:
    def test_what_is_read_of_it(self):
        scope = {"scope": ["a", "b"]}
        text = jwt_of({"sub": "app", "exp": 1_700_000_300, "iat": 1_700_000_000.5, **scope})
        token = token_of_jwt(f" {text}\n", NAMES, "a file")
        assert token.value.reveal() == text
        assert (token.issued_at_ms, token.expires_at_ms) == (1_700_000_000_500, 1_700_000_300_000)
        assert token.is_valid(1_700_000_299_999)
        assert not token.is_valid(1_700_000_300_000)
        assert "S1GNATURE" not in repr(token)
        names = OAuthConfig(scope_claim_name="scp", sub_claim_name="email")
        token = token_of_jwt(jwt_of({"email": "a@b", "exp": 5, "scp": "x", "iat": 0}), names, "a")
        assert (token.issued_at_ms, token.expires_at_ms) == (0, 5_000)

    @each_row(
        ("claims", "message"),
        [
            ({"sub": "S3CRET"}, "has no claim 'exp'"),
            ({"exp": None, "sub": "S3CRET"}, "has no claim 'exp'"),
            ({"exp": "S3CRET", "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": True, "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": -1, "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": 10**400, "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": 10**30, "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": float("nan"), "sub": "a"}, f"claim 'exp' {NO_NUMBER}"),
            ({"exp": 5}, NO_SUBJECT),
            ({"exp": 5, "sub": " "}, NO_SUBJECT),
            ({"exp": 5, "sub": 7}, NO_SUBJECT),
            ({"exp": 5, "sub": "a", "iat": "S3CRET"}, f"claim 'iat' {NO_NUMBER}"),
            ({"exp": 5, "sub": "a", "scope": ["x", "x"]}, NO_SCOPE),
            ({"exp": 5, "sub": "a", "scope": [""]}, NO_SCOPE),
            ({"exp": 5, "sub": "a", "scope": " "}, NO_SCOPE),
            ({"exp": 5, "sub": "a", "scope": [None]}, NO_SCOPE),
            (["S3CRET"], "claims are not a JSON object"),
            # Opaque tokens need a token provider.
            *((text, "is not a JWT") for text in ("", "S3CRET", "a.S3CRET", "a.b.c.S3CRET")),
            *((text, "is not a JWT") for text in ("a..c", "S3CRET.é.c")),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_what_java_refuses_too(self, claims, message):
        text = claims if isinstance(claims, str) else jwt_of(claims)
        with pytest.raises(AuthenticationError) as raised:
            token_of_jwt(text, NAMES, "the file /a")
        assert message in str(raised.value)
        assert str(raised.value).startswith("the token of the file /a ")
        assert "S3CRET" not in str(raised.value)

    @given(
        st.text()
        | st.text(alphabet="abcdeyJ.-_=")
        | st.builds(
            jwt_of,
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
                lambda inner: st.dictionaries(
                    st.sampled_from(["exp", "sub", "iat", "scope"]), inner
                ),
            ),
        )
    )
    def test_anything_is_a_token_or_refused(self, text):
        try:
            token_of_jwt(text, NAMES, "a file")
        except AuthenticationError:
            pass


def of_file(path, jaas="extension_x=y", **claims):
    """A token of a file."""
    path.write_text(jwt(**claims) + "\n")
    return oauth_config(jaas, token_endpoint_url=f"file://{path}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "token.jwt"


WITH_EXTENSION = "S1GNATURE\x01x=y\x01\x01"


class TestFile:
    def test_a_jaas_text_or_one_reference_to_it(self, path, monkeypatch):
        """Both tell extensions."""
        config = of_file(path)
        monkeypatch.setenv("TEST_JAAS", config.jaas_config.reveal())
        for text in (config.jaas_config, Secret("${env:TEST_JAAS}")):
            login = login_for(replace(config, jaas_config=text))
            login.login(1_000)
            assert first_message(login).endswith(WITH_EXTENSION)
            login.close()

    def test_a_file_that_is_not_there_or_that_nobody_renews(self, path):
        login = login_for(oauth_config(token_endpoint_url=f"file:{path}"))
        told = rf"token\.endpoint\.url=file:{path}"
        with pytest.raises(AuthenticationError, match=told) as raised:
            login.login(1_000)
        assert not isinstance(raised.value, CredentialsUnavailableError)
        with pytest.raises(CredentialsUnavailableError, match="program that renews the file"):
            login_for(of_file(path, exp=5)).login(1_000)

    def test_with_a_token_other_references_are_not_read_again(self, path, tmp_path, monkeypatch):
        secret = tmp_path / "secret"
        secret.write_text("S3CRET")
        jaas = f'clientSecret="${{dir:{tmp_path}:secret}}" extension_x="${{env:TEST_EXTENSION}}"'
        login = login_for(of_file(path, jaas))
        monkeypatch.setenv("TEST_EXTENSION", "y")
        login.login(1_000)
        secret.unlink()
        assert first_message(login).endswith(WITH_EXTENSION)
        monkeypatch.delenv("TEST_EXTENSION")
        with pytest.raises(AuthenticationError, match="TEST_EXTENSION"):
            login.create_sasl_client("b")
        login.close()


EXPIRY = time.time() + 86_400


def gives_jwt():
    return jwt_of({"sub": "a", "exp": EXPIRY})


def returning(value):
    return lambda: value


gives_opaque = returning(("0paque", EXPIRY))
gives_nothing = returning(None)
gives_number = returning(5)
gives_duration = returning(("S3CRET", 900))
gives_milliseconds = returning(("S3CRET", 1_700_000_000_000))
gives_text_as_time = returning(("S3CRET", "S3CRET"))


def raises():
    raise RuntimeError("my own words")


def test_a_provider_gives_a_jwt_or_any_token_with_the_time_at_which_it_expires():
    jwt, opaque = (provided_token(f"{__name__}:gives_{n}", NAMES) for n in ("jwt", "opaque"))
    assert jwt.expires_at_ms == opaque.expires_at_ms == int(EXPIRY * 1000)
    assert opaque.value.reveal() == "0paque"


@each_row(
    ("name", "message"),
    [
        ("gives_nothing", "returned nothing: it must return a token as text"),
        ("gives_number", "returned a value of type int"),
        ("gives_duration", "900 looks like a duration: add time.time() to it"),
        ("gives_milliseconds", "looks like a number of milliseconds: divide it by 1000"),
        ("gives_text_as_time", "is a value of type str, not a number of seconds"),
    ],
)
def test_what_a_provider_gives_that_is_no_token(name, message):
    with pytest.raises(AuthenticationError) as raised:
        provided_token(f"{__name__}:{name}", NAMES)
    assert message in str(raised.value)
    assert f"{OPTION} {__name__}:{name}" in str(raised.value)
    assert "S3CRET" not in str(raised.value)


def test_what_a_provider_raises_may_be_tried_again_and_one_that_cannot_be_loaded_not():
    with pytest.raises(CredentialsUnavailableError, match="my own words") as raised:
        provided_token(f"{__name__}:raises", NAMES)
    assert isinstance(raised.value.__cause__, RuntimeError)
    for name in ("no_module_at_all:x", f"{__name__}:nothing"):
        with pytest.raises(AuthenticationError, match="cannot be loaded"):
            login_for(oauth_config(token_provider=name)).login(1_000)


# --- a token is fetched and renewed ----------------------------------------------------------------

AWAY = CredentialsUnavailableError("the issuer is away")
REFUSED = AuthenticationError("invalid_client")
EXPIRED = pytest.raises(
    CredentialsUnavailableError, match="has expired, and a new one is being fetched"
)


class Issuer:
    """Gives tokens ``token-1``, ``token-2`` … with a life of 20 s, unless ``error`` is set.

    ``may_answer``: no answer comes before it is set.
    """

    def __init__(self, clock):
        self.clock = clock
        self.life_ms = 20_000
        self.count = 0
        self.error = None
        self.timeouts = []
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.answers = threading.Semaphore(0)
        self.may_answer.set()

    def fetch(self, timeout_ms):
        self.timeouts.append(timeout_ms)
        self.asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        self.answers.release()
        if self.error is not None:
            raise self.error
        self.count += 1
        now_ms = self.clock.timestamp_ms()
        return Token(Secret(f"token-{self.count}"), now_ms, now_ms + self.life_ms)


class World:
    """A keeper whose thread is stepped by the test, unless it ``has_thread`` of its own."""

    def __init__(self, has_thread=False):
        self.clock = SimulatedClock()
        self.issuer = Issuer(self.clock)
        self.keeper = TokenKeeper(
            self.issuer.fetch, LoginConfig(), self.clock, Chance(0.0), has_thread
        )

    def run(self, milliseconds, uses=True):
        """The thread's loop for so long, with a conversation at each of its steps."""
        end_ms = self.clock.elapsed_ms + milliseconds
        while self.clock.elapsed_ms < end_ms:
            if uses:
                try:
                    self.keeper.token()
                except AuthenticationError:
                    pass
            wait_ms = self.keeper.step()
            left_ms = end_ms - self.clock.elapsed_ms
            self.clock.sleep(left_ms if wait_ms is None else min(wait_ms, left_ms))
            assert wait_ms is None or 0 < wait_ms <= LONGEST_SLEEP_MS

    @property
    def token(self):
        return self.keeper.token().reveal()

    def preparing(self, timeout_ms=PATIENCE_MS):
        """A thread that waits for a token, and ends also where none comes."""

        def prepare():
            with contextlib.suppress(CredentialsUnavailableError):
                self.keeper.prepare(timeout_ms)

        thread = threading.Thread(target=prepare)
        thread.start()
        return thread


def ended(*threads):
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def world():
    return World()


@pytest.fixture
def prepared(world):
    world.keeper.prepare(5_000)
    return world


class TestKeeper:
    def test_it_is_renewed_before_it_expires_for_as_long_as_it_is_used(self, prepared):
        prepared.run(90_000)
        # At 16 s, 32 s, 48 s, 64 s and 80 s.
        assert prepared.issuer.count == 6
        assert prepared.token == "token-6"

    def test_a_token_that_nobody_uses_is_renewed_when_it_is_used_again(self, prepared):
        prepared.run(90_000, uses=False)
        # The one renewal is of the token that `prepare` got for somebody.
        assert prepared.issuer.count == 2
        assert prepared.keeper.next_refresh_ms is None
        with EXPIRED:
            prepared.keeper.token()
        prepared.keeper.step()
        assert prepared.token == "token-3"

    def test_an_issuer_that_is_away_for_longer_than_the_token_lives(self, prepared):
        prepared.issuer.error = AWAY
        prepared.run(19_000)
        assert len(prepared.issuer.timeouts) == 2
        assert prepared.token == "token-1", "the old one stays in use meanwhile"
        prepared.run(11_000)
        with pytest.raises(CredentialsUnavailableError) as raised:
            prepared.keeper.token()
        assert str(raised.value) == (
            "the token has expired, and a new one could not be fetched: the issuer is away"
        )
        prepared.issuer.error = None
        prepared.run(11_000)
        assert prepared.token == "token-2"

    def test_a_clock_that_is_set_back_postpones_no_retry_and_lengthens_no_life(self, world):
        world.clock.ahead_ms, world.issuer.error = HOUR_MS, AWAY
        with pytest.raises(CredentialsUnavailableError, match="the issuer is away"):
            world.keeper.prepare(5_000)
        world.clock.ahead_ms, world.issuer.error = 0, None
        world.run(11_000)
        assert world.token == "token-1"
        world = World()
        world.clock.ahead_ms = HOUR_MS
        world.keeper.prepare(5_000)
        world.clock.ahead_ms = 0
        world.run(17_000)
        assert world.token == "token-2", "renewed in time"

    def test_a_suspended_machine_has_lived_through_its_tokens(self, prepared):
        prepared.clock.ahead_ms = HOUR_MS  # the monotonic clock stood still meanwhile
        with EXPIRED:
            prepared.keeper.token()
        prepared.keeper.step()
        assert prepared.token == "token-2"

    def test_an_issuer_that_refuses_ends_it_only_when_the_token_has_expired(self, prepared):
        prepared.issuer.error = REFUSED
        prepared.run(19_000)
        assert prepared.token == "token-1"
        prepared.run(2_000)
        with pytest.raises(AuthenticationError, match="invalid_client") as raised:
            prepared.keeper.token()
        assert not isinstance(raised.value, CredentialsUnavailableError)
        # A refusal of long ago is no answer to who asks today.
        asked = len(prepared.issuer.timeouts)
        prepared.run(HOUR_MS, uses=False)
        assert len(prepared.issuer.timeouts) <= asked + 1, (
            "nobody uses it: its issuer is left alone"
        )
        assert prepared.keeper.next_refresh_ms is None
        prepared.issuer.error = None
        prepared.keeper.prepare(5_000)
        assert prepared.token == "token-2"

    def test_a_renewal_that_was_given_up_is_made_up_for_at_the_next_use(self, world):
        world.issuer.life_ms = HOUR_MS
        world.keeper.prepare(5_000)
        world.issuer.error = AWAY
        world.run(50 * 60_000, uses=False)
        assert world.keeper.next_refresh_ms is None
        world.issuer.error = None
        assert world.token == "token-1", "it has not expired"
        world.keeper.step()
        assert world.token == "token-2"

    @pytest.mark.parametrize("error", [REFUSED, AWAY], ids=repr)
    def test_a_first_token_that_cannot_be_had(self, error, world):
        world.issuer.error = error
        with pytest.raises(type(error), match=str(error)):
            world.keeper.prepare(5_000)
        with pytest.raises(type(error), match="there is no token yet, and a new one could not"):
            world.keeper.token()
        # The error is forgotten with the next token.
        world.issuer.error = None
        world.keeper.prepare(1)
        world.clock.sleep(world.issuer.life_ms)
        with EXPIRED:
            world.keeper.token()

    def test_closed(self, prepared):
        prepared.keeper.close()
        prepared.clock.sleep(16_000)
        assert prepared.keeper.step() is None
        assert prepared.issuer.count == 1


class TestThread:
    """The same with the thread itself, and real time where nothing depends on how much passes."""

    def test_it_renews_and_ends_when_it_is_closed(self):
        # Tokens that earlier tests of this process asked for may be kept still.
        others = set(threading.enumerate())
        world = World(has_thread=True)
        for expected in ("token-1", "token-2"):
            with pytest.raises(CredentialsUnavailableError):
                world.keeper.token()
            assert world.issuer.answers.acquire(timeout=PATIENCE_S)
            world.keeper.prepare(PATIENCE_MS)
            assert world.token == expected
            world.clock.sleep(25_000)
        threads = [t for t in set(threading.enumerate()) - others if t.name == "pykafka-sink-token"]
        assert len(threads) == 1
        world.keeper.close()
        ended(*threads)

    def test_many_who_wait_share_one_fetch_and_no_longer_than_allowed(self):
        world = World(has_thread=True)
        world.issuer.may_answer.clear()
        waiting = [world.preparing() for _ in range(5)]
        assert world.issuer.asked.wait(PATIENCE_S)
        with pytest.raises(CredentialsUnavailableError, match="is being fetched"):
            world.keeper.prepare(1)
        world.issuer.may_answer.set()
        ended(*waiting)
        assert world.issuer.count == 1
        world.keeper.close()

    def test_the_time_that_another_took_is_not_had_again(self, world):
        """The second one fetches after the first has failed, with what is left of its time."""
        world.issuer.error = AWAY
        world.issuer.may_answer.clear()
        first = world.preparing(100_000)
        assert world.issuer.asked.wait(PATIENCE_S)
        looked = threading.Event()
        find = world.keeper._use

        def use():
            looked.set()
            return find()

        world.keeper._use = use
        second = world.preparing(100_000)
        assert looked.wait(PATIENCE_S)
        world.clock.sleep(40_000)
        world.issuer.may_answer.set()
        ended(first, second)
        assert world.issuer.timeouts == [100_000, 60_000]

    def test_the_thread_sleeps_between_its_steps(self):
        keeper, sleeps = World(has_thread=True).keeper, queue.Queue()

        class Wake(threading.Event):
            def wait(self, timeout=None):
                sleeps.put(timeout)
                return super().wait(PATIENCE_S)

        keeper._wake = Wake()
        keeper.prepare(PATIENCE_MS)
        assert sleeps.get(timeout=PATIENCE_S) > 1
        thread = keeper._thread
        keeper.close()
        ended(thread)

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_a_thread_that_has_ended_or_is_about_to_is_replaced(self, is_gone):
        keeper = World(has_thread=True).keeper
        former = threading.Thread(target=str) if is_gone else threading.current_thread()
        keeper._thread = former
        if is_gone:
            former.start()
            ended(former)
        else:
            assert keeper.step() is None, "nothing is to be renewed"
        keeper.prepare(PATIENCE_MS)
        thread = keeper._thread
        keeper.close()
        ended(thread)
        assert thread is not former
        assert thread.daemon, "a process that ends does not wait for it"
        keeper._thread = None
        keeper.token()
        assert keeper._thread is None, "a closed one has none"


HOURS_TOKEN = Token(Secret("t"), START_MS, START_MS + HOUR_MS)


class TestSchedule:
    def schedule(self, chance=0.0, **options):
        return RefreshSchedule(LoginConfig(**options), Chance(chance))

    def test_a_failure_and_a_use_are_over_with_the_next_token(self):
        schedule = self.schedule()
        schedule.on_failed(START_MS)
        schedule.on_used(START_MS)
        schedule.on_obtained(HOURS_TOKEN, START_MS)
        schedule.on_wanted(START_MS + 1)
        assert schedule.next_ms == START_MS + 1
        schedule.on_obtained(HOURS_TOKEN, START_MS + 1)
        assert not schedule.is_due(START_MS + HOUR_MS), "what nobody uses is not renewed"
        assert schedule.next_ms is None
        schedule.on_used(START_MS + HOUR_MS)
        assert schedule.is_due(START_MS + HOUR_MS)

    @each_row(
        ("life_ms", "chance", "options", "expected_ms"),
        [
            (HOUR_MS, 0.0, {}, 0.8 * HOUR_MS),
            (HOUR_MS, 1.0, {}, 0.85 * HOUR_MS),
            (HOUR_MS, 0.5, {}, 0.825 * HOUR_MS),
            (HOUR_MS, 0.0, {"refresh_window_factor": 0.5}, 0.5 * HOUR_MS),
            # Not within 300 s of its end.
            (1_000_000, 1.0, {}, 700_000),
            (HOUR_MS, 0.0, {"refresh_buffer_seconds": 3600, "refresh_min_period_seconds": 0}, 0),
            # Not within 60 s of its beginning.
            (70_000, 0.0, {"refresh_buffer_seconds": 0}, 60_000),
            # No room for both: the part of its life only.
            (359_999, 0.0, {}, 287_999),
            (20_000, 0.0, {}, 16_000),
            (20_000, 1.0, {}, 17_000),
            (0, 0.0, {}, 0),
            (-5, 0.0, {}, 0),
            # The life began when it was issued; or that is not known.
            (HOUR_MS // 2, 0.0, {"issued": START_MS - HOUR_MS // 2}, 0.3 * HOUR_MS),
            (HOUR_MS, 0.0, {"issued": None}, 0.8 * HOUR_MS),
        ],
    )
    def test_after_a_token_has_come(self, life_ms, chance, options, expected_ms):
        options = dict(options)
        issued_at_ms = options.pop("issued", START_MS)
        schedule = self.schedule(chance, **options)
        schedule.on_obtained(Token(Secret("t"), issued_at_ms, START_MS + life_ms), START_MS)
        assert schedule.next_ms - START_MS == pytest.approx(expected_ms, abs=1)

    def test_what_is_wanted_is_asked_for_at_once_but_not_after_a_failure(self):
        schedule = self.schedule(retry_backoff_max_ms=7_000)
        assert schedule.next_ms is None
        schedule.on_wanted(START_MS)
        assert schedule.is_due(START_MS)
        schedule.on_failed(START_MS)
        schedule.on_wanted(START_MS + 5)
        assert schedule.next_ms == START_MS + 7_000
        assert not schedule.is_due(START_MS + 6_999)
        assert schedule.is_due(START_MS + 7_000)
        schedule.on_wanted(START_MS + 20_000)
        assert schedule.next_ms == START_MS + 20_000


@pytest.mark.parametrize(
    ("error", "options", "timeout_ms", "told", "pauses"),
    [
        (AWAY, {}, 60_000, r" \(tried 7 times in 6300 ms\)", [100, 200, 400, 800, 1600, 3200]),
        # The caller's time is kept.
        (AWAY, {}, 500, r" \(tried 3 times in 300 ms\)", [100, 200]),
        # Without pauses it still ends.
        (AWAY, {"retry_backoff_ms": 0, "retry_backoff_max_ms": 0}, 1_000, r" \(tried once\)", []),
        # A refusal is not tried again.
        (REFUSED, {}, 60_000, "", []),
    ],
)
def test_attempts_end_in_time_and_their_pauses_double(error, options, timeout_ms, told, pauses):
    clock, paused, left = SimulatedClock(), [], []

    def pause(milliseconds):
        paused.append(milliseconds)
        clock.sleep(milliseconds)

    def attempt(left_ms):
        left.append(left_ms)
        raise error

    with pytest.raises(type(error), match=f"^{error}{told}$"):
        with_retries(attempt, LoginConfig(**options), RetryTimer(clock, pause), timeout_ms)
    assert paused == pauses
    assert (left[0], left[-1]) == (timeout_ms, timeout_ms - sum(pauses))
