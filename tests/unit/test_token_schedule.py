"""When a token is renewed, and how often an attempt is repeated: times only."""

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.security.oauth_tokens import RefreshSchedule, RetryTimer, Token, with_retries
from tests.unit.simulated_time import START_MS, Chance, SimulatedClock

HOUR_MS = 3_600_000


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
