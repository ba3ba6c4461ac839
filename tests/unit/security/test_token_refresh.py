"""What is handed out while a token is fetched and renewed: on a clock that the test sets."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.security.oauth_tokens import (
    LONGEST_SLEEP_MS,
    RefreshSchedule,
    RetryTimer,
    Token,
    TokenKeeper,
    TokenKeeperDependencies,
    with_retries,
)
from tests.unit.simulated_time import START_MS, Chance, SimulatedClock

HOUR_MS = 3_600_000


class Issuer:
    """Gives tokens ``token-1``, ``token-2`` … with a life of 20 s, unless ``error`` is set."""

    def __init__(self, clock, life_ms=20_000):
        self.clock = clock
        self.life_ms = life_ms
        self.count = 0
        self.error = None
        self.timeouts = []

    def fetch(self, timeout_ms):
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            raise self.error
        self.count += 1
        now_ms = self.clock.timestamp_ms()
        return Token(Secret(f"token-{self.count}"), now_ms, now_ms + self.life_ms)


class World:
    """A keeper whose thread is stepped by the test."""

    def __init__(self):
        self.clock = SimulatedClock()
        self.issuer = Issuer(self.clock)
        dependencies = TokenKeeperDependencies(self.clock, Chance(0.0), has_thread=False)
        self.keeper = TokenKeeper(self.issuer.fetch, LoginConfig(), dependencies)

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


def prepared():
    world = World()
    world.keeper.prepare(5_000)
    return world


class TestKeeper:
    def test_nothing_is_fetched_before_it_is_asked_for(self):
        world = World()
        assert world.keeper.step() is None
        assert world.issuer.timeouts == []

    def test_the_first_token_is_waited_for(self):
        world = prepared()
        assert world.keeper.token().reveal() == "token-1"
        world.keeper.prepare(5_000)
        assert world.issuer.timeouts == [5_000]

    def test_it_is_renewed_before_it_expires_for_as_long_as_it_is_used(self):
        world = prepared()
        world.run(90_000)
        # At 16 s, 32 s, 48 s, 64 s and 80 s.
        assert world.issuer.count == 6
        assert world.keeper.token().reveal() == "token-6"

    def test_a_token_that_nobody_uses_is_not_renewed(self):
        world = prepared()
        world.run(90_000, uses=False)
        # The one renewal is of the token that `prepare` got for somebody.
        assert world.issuer.count == 2
        assert world.keeper.next_refresh_ms is None

    def test_an_idle_login_asks_again_when_it_is_used(self):
        world = prepared()
        world.run(90_000, uses=False)
        with pytest.raises(
            CredentialsUnavailableError, match="has expired, and a new one is being"
        ):
            world.keeper.token()
        world.keeper.step()
        assert world.keeper.token().reveal() == "token-3"

    def test_the_old_token_stays_in_use_while_the_issuer_is_away(self):
        world = prepared()
        world.issuer.error = CredentialsUnavailableError("the issuer is away")
        world.run(19_000)
        assert len(world.issuer.timeouts) == 2
        assert world.keeper.token().reveal() == "token-1"

    def test_an_issuer_that_is_away_for_longer_than_the_token_lives(self):
        world = prepared()
        world.issuer.error = CredentialsUnavailableError("the issuer is away")
        world.run(30_000)
        with pytest.raises(CredentialsUnavailableError) as raised:
            world.keeper.token()
        assert str(raised.value) == (
            "the token has expired, and a new one could not be fetched: the issuer is away"
        )
        world.issuer.error = None
        world.run(11_000)
        assert world.keeper.token().reveal() == "token-2"

    def test_an_issuer_that_refuses_ends_it_only_when_the_token_has_expired(self):
        world = prepared()
        world.issuer.error = AuthenticationError("invalid_client")
        world.run(19_000)
        assert world.keeper.token().reveal() == "token-1"
        world.run(2_000)
        with pytest.raises(AuthenticationError, match="invalid_client") as raised:
            world.keeper.token()
        assert not isinstance(raised.value, CredentialsUnavailableError)

    def test_a_refusal_of_long_ago_is_no_answer_to_who_asks_today(self):
        world = prepared()
        world.issuer.error = AuthenticationError("invalid_client")
        world.run(HOUR_MS, uses=False)
        assert len(world.issuer.timeouts) <= 3, "nobody uses it: its issuer is left alone"
        assert world.keeper.next_refresh_ms is None
        world.issuer.error = None
        world.keeper.prepare(5_000)
        assert world.keeper.token().reveal() == "token-2"

    def test_a_renewal_that_was_given_up_is_made_up_for_at_the_next_use(self):
        world = World()
        world.issuer.life_ms = HOUR_MS
        world.keeper.prepare(5_000)
        world.issuer.error = CredentialsUnavailableError("the issuer is away")
        world.run(50 * 60_000, uses=False)
        assert world.keeper.next_refresh_ms is None
        world.issuer.error = None
        assert world.keeper.token().reveal() == "token-1", "it has not expired"
        world.keeper.step()
        assert world.keeper.token().reveal() == "token-2"

    @pytest.mark.parametrize("kind", [AuthenticationError, CredentialsUnavailableError])
    def test_a_first_token_that_cannot_be_had(self, kind):
        world = World()
        world.issuer.error = kind("S0ME cause")
        with pytest.raises(kind, match="S0ME cause"):
            world.keeper.prepare(5_000)
        with pytest.raises(kind, match="there is no token yet, and a new one could not"):
            world.keeper.token()

    def test_a_token_without_prepare_is_fetched_by_the_thread(self):
        world = World()
        with pytest.raises(CredentialsUnavailableError, match="there is no token yet"):
            world.keeper.token()
        world.keeper.step()
        assert world.keeper.token().reveal() == "token-1"

    def test_the_clock_may_jump(self):
        """A machine that slept: what has expired meanwhile is not handed out."""
        world = prepared()
        world.clock.sleep(10 * HOUR_MS)
        with pytest.raises(CredentialsUnavailableError, match="has expired"):
            world.keeper.token()

    def test_closed(self):
        world = prepared()
        world.keeper.close()
        world.clock.sleep(16_000)
        assert world.keeper.step() is None
        assert world.issuer.count == 1


class TestThread:
    """The same with the thread itself, and real time where nothing depends on how much passes."""

    def keeper(self, issuer, clock):
        return TokenKeeper(
            issuer.fetch, LoginConfig(), TokenKeeperDependencies(clock, random.Random(1))
        )

    def test_it_renews_and_ends_when_it_is_closed(self):
        # Tokens that earlier tests of this process asked for may be kept still.
        others = set(threading.enumerate())
        clock = SimulatedClock()
        issuer = Issuer(clock)
        fetched = threading.Semaphore(0)

        def fetch(timeout_ms):
            try:
                return issuer.fetch(timeout_ms)
            finally:
                fetched.release()

        keeper = TokenKeeper(fetch, LoginConfig(), TokenKeeperDependencies(clock, Chance(0.0)))
        with pytest.raises(CredentialsUnavailableError):
            keeper.token()
        assert fetched.acquire(timeout=120)
        keeper.prepare(120_000)
        assert keeper.token().reveal() == "token-1"
        clock.sleep(25_000)
        with pytest.raises(CredentialsUnavailableError):
            keeper.token()
        assert fetched.acquire(timeout=120)
        keeper.prepare(120_000)
        assert keeper.token().reveal() == "token-2"
        threads = [t for t in set(threading.enumerate()) - others if t.name == "pykafka-sink-token"]
        assert len(threads) == 1
        keeper.close()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()

    def test_many_who_wait_share_one_fetch(self):
        clock = SimulatedClock()
        issuer = Issuer(clock)
        may_answer = threading.Event()

        def fetch(timeout_ms):
            assert may_answer.wait(120)
            return issuer.fetch(timeout_ms)

        keeper = TokenKeeper(fetch, LoginConfig(), TokenKeeperDependencies(clock, Chance(0.0)))
        waiting = [threading.Thread(target=keeper.prepare, args=(120_000,)) for _ in range(5)]
        for thread in waiting:
            thread.start()
        may_answer.set()
        for thread in waiting:
            thread.join(120)
            assert not thread.is_alive()
        assert issuer.count == 1
        keeper.close()

    def test_who_waits_for_another_waits_no_longer_than_allowed(self):
        clock = SimulatedClock()
        may_answer, asked = threading.Event(), threading.Event()
        issuer = Issuer(clock)

        def fetch(timeout_ms):
            asked.set()
            assert may_answer.wait(120)
            return issuer.fetch(timeout_ms)

        keeper = TokenKeeper(fetch, LoginConfig(), TokenKeeperDependencies(clock, Chance(0.0)))
        other = threading.Thread(target=keeper.prepare, args=(120_000,))
        other.start()
        assert asked.wait(120)
        with pytest.raises(CredentialsUnavailableError, match="is being fetched"):
            keeper.prepare(1)
        may_answer.set()
        other.join(120)
        keeper.close()

    def test_the_time_that_another_took_is_not_had_again(self):
        """The second one fetches after the first has failed, with what is left of its time."""
        clock = SimulatedClock()
        asked, may_fail = threading.Event(), threading.Event()
        timeouts = []

        def fetch(timeout_ms):
            timeouts.append(timeout_ms)
            asked.set()
            assert may_fail.wait(120)
            raise CredentialsUnavailableError("away")

        dependencies = TokenKeeperDependencies(clock, Chance(0.0), has_thread=False)
        keeper = TokenKeeper(fetch, LoginConfig(), dependencies)

        def prepare():
            with pytest.raises(CredentialsUnavailableError):
                keeper.prepare(100_000)

        first, second = (threading.Thread(target=prepare) for _ in range(2))
        first.start()
        assert asked.wait(120)
        looked = threading.Event()
        find = keeper._use

        def use():
            looked.set()
            return find()

        keeper._use = use
        second.start()
        assert looked.wait(120)
        clock.sleep(40_000)
        may_fail.set()
        for thread in (first, second):
            thread.join(120)
            assert not thread.is_alive()
        assert timeouts == [100_000, 60_000]

    def test_a_thread_that_is_gone_is_replaced_and_a_closed_one_is_not(self):
        clock = SimulatedClock()
        keeper = self.keeper(Issuer(clock), clock)
        gone = keeper._thread = threading.Thread(target=str)
        gone.start()
        gone.join(120)
        keeper.prepare(120_000)
        thread = keeper._thread
        assert thread is not gone
        keeper.close()
        thread.join(120)
        keeper._thread = None
        keeper.token()
        assert keeper._thread is None

    def test_an_error_is_forgotten_with_the_next_token(self):
        world = World()
        world.issuer.error = AuthenticationError("refused once")
        with pytest.raises(AuthenticationError):
            world.keeper.prepare(1)
        world.issuer.error = None
        world.keeper.prepare(1)
        world.clock.sleep(world.issuer.life_ms)
        with pytest.raises(CredentialsUnavailableError, match="expired, and a new one is being"):
            world.keeper.token()


FORKING = """
import os, threading, time
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig
from spark_kafka_sink.security.login import login_of

given = []

def token():
    given.append(os.getpid())
    return f"token-of-{os.getpid()}", time.time() + 3600

config = SaslConfig("OAUTHBEARER", oauth=OAuthConfig(token_provider="__main__:token"))
login = login_of(config)
login.login(120_000)
assert login_of(config) is login
threads = [thread.name for thread in threading.enumerate()]
assert "pykafka-sink-token" in threads, threads
child = os.fork()
if child == 0:
    mine = login_of(config)
    mine.login(120_000)
    right = mine is not login and f"token-of-{os.getpid()}".encode() in mine.create_sasl_client("b").initial_response()
    threads = [thread.name for thread in threading.enumerate()]
    os._exit(0 if right and "pykafka-sink-token" in threads else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert given == [os.getpid()]
"""


def test_a_forked_process_has_a_login_and_a_thread_of_its_own(tmp_path):
    script = tmp_path / "forking.py"
    script.write_text(FORKING)
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


class TestSchedule:
    def schedule(self, chance=0.0, **options):
        return RefreshSchedule(LoginConfig(**options), Chance(chance))

    def next_ms(self, life_ms, chance=0.0, issued_ago_ms=0, **options):
        """How long after it came the token is renewed."""
        schedule = self.schedule(chance, **options)
        issued_at_ms = None if issued_ago_ms is None else START_MS - issued_ago_ms
        schedule.on_obtained(Token(Secret("t"), issued_at_ms, START_MS + life_ms), START_MS)
        return schedule.next_ms - START_MS

    def test_a_failure_and_a_use_are_over_with_the_next_token(self):
        schedule = self.schedule()
        token = Token(Secret("t"), START_MS, START_MS + HOUR_MS)
        schedule.on_failed(START_MS)
        schedule.on_used(START_MS)
        schedule.on_obtained(token, START_MS)
        schedule.on_wanted(START_MS + 1)
        assert schedule.next_ms == START_MS + 1
        schedule.on_obtained(token, START_MS + 1)
        assert not schedule.is_due(START_MS + HOUR_MS)
        assert schedule.next_ms is None

    @pytest.mark.parametrize(
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
        ],
    )
    def test_after_a_token_has_come(self, life_ms, chance, options, expected_ms):
        assert self.next_ms(life_ms, chance, **options) == pytest.approx(expected_ms, abs=1)

    def test_the_life_began_when_it_was_issued(self):
        half_gone = self.next_ms(HOUR_MS // 2, issued_ago_ms=HOUR_MS // 2)
        assert half_gone == pytest.approx(0.3 * HOUR_MS, abs=1)

    def test_a_token_that_does_not_say_when_it_was_issued(self):
        assert self.next_ms(HOUR_MS, issued_ago_ms=None) == pytest.approx(0.8 * HOUR_MS, abs=1)

    def test_after_a_failure(self):
        schedule = self.schedule(retry_backoff_max_ms=7_000)
        schedule.on_used(START_MS)
        schedule.on_failed(START_MS)
        assert schedule.next_ms == START_MS + 7_000
        assert not schedule.is_due(START_MS + 6_999)
        assert schedule.is_due(START_MS + 7_000)

    def test_what_nobody_uses_is_not_renewed(self):
        schedule = self.schedule()
        schedule.on_obtained(Token(Secret("t"), None, START_MS + HOUR_MS), START_MS)
        assert not schedule.is_due(START_MS + HOUR_MS)
        assert schedule.next_ms is None
        schedule.on_used(START_MS + HOUR_MS)
        assert schedule.is_due(START_MS + HOUR_MS)

    def test_what_is_wanted_is_asked_for_at_once_but_not_after_a_failure(self):
        schedule = self.schedule()
        assert schedule.next_ms is None
        schedule.on_wanted(START_MS)
        assert schedule.is_due(START_MS)
        schedule.on_failed(START_MS)
        schedule.on_wanted(START_MS + 5)
        assert schedule.next_ms == START_MS + 10_000
        schedule.on_wanted(START_MS + 20_000)
        assert schedule.next_ms == START_MS + 20_000


class TestRetries:
    def waiting(self):
        clock, pauses = SimulatedClock(), []

        def pause(milliseconds):
            pauses.append(milliseconds)
            clock.sleep(milliseconds)

        return clock, RetryTimer(clock, pause), pauses

    def test_pauses_double_and_end_in_time(self):
        clock, waiting, pauses = self.waiting()
        left = []

        def attempt(left_ms):
            left.append(left_ms)
            raise CredentialsUnavailableError("away")

        with pytest.raises(
            CredentialsUnavailableError, match=r"^away \(tried 7 times in 6300 ms\)$"
        ):
            with_retries(attempt, LoginConfig(), waiting, 60_000)
        assert pauses == [100, 200, 400, 800, 1600, 3200]
        assert clock.elapsed_ms < 10_000
        assert left[0] == 60_000
        assert left[-1] == 60_000 - 6_300

    def test_the_callers_time_is_kept(self):
        clock, waiting, _ = self.waiting()

        def attempt(left_ms):
            raise CredentialsUnavailableError("away")

        with pytest.raises(CredentialsUnavailableError, match="tried 3 times"):
            with_retries(attempt, LoginConfig(), waiting, 500)
        assert clock.elapsed_ms <= 500

    def test_without_pauses_it_still_ends(self):
        _, waiting, _ = self.waiting()
        config = LoginConfig(retry_backoff_ms=0, retry_backoff_max_ms=0)

        def attempt(left_ms):
            raise CredentialsUnavailableError("away")

        with pytest.raises(CredentialsUnavailableError, match=r"\(tried once\)"):
            with_retries(attempt, config, waiting, 1_000)

    def test_a_refusal_is_not_tried_again(self):
        _, waiting, pauses = self.waiting()

        def attempt(left_ms):
            raise AuthenticationError("invalid_client")

        with pytest.raises(AuthenticationError, match="^invalid_client$"):
            with_retries(attempt, LoginConfig(), waiting, 60_000)
        assert pauses == []
