"""SASL GSSAPI from the producer to real brokers, with a real KDC.

Needs what ``make kerberos`` says. Skipped without.
"""

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.localkafka import LocalSecurity
from tests.local_kafka import PatientKafka
from tests.security.kdc import REALM, Kdc, missing_programs
from tests.security.test_failures import tells
from tests.security.writing import ROWS, VALUES, numbers, save, values_in, write
from tests.spark.session import spark_session

pytest.importorskip("gssapi", reason="the package gssapi is not installed")
pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}")

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
PLAIN, TLS = "KERBEROS", "KERBEROS_TLS"
AN_HOUR_APART = (3_600, -3_600)
"""Seconds that the clock of a KDC is ahead, or behind: Kerberos allows for 5 minutes."""
REFUSED = ("GSSAPI: Authentication failed", "5 minutes", "kafka.sasl.kerberos.service.name", "log")
"""What brokers do not say, all of it: whose clock, whose key."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory):
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    with kdc.running():
        yield kdc


@pytest.fixture(scope="module")
def client_keytab(kdc):
    return kdc.keytab("alice")


@pytest.fixture(scope="module")
def kerberized(kdc):
    """Two brokers; both are kafka/127.0.0.1, for that is where clients connect to."""
    keytab = kdc.keytab("kafka/127.0.0.1")
    own = {
        "gssapi.sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="kafka/127.0.0.1@{REALM}";',
        "sasl.kerberos.service.name": "kafka",
    }
    security = {
        PLAIN: LocalSecurity("SASL_PLAINTEXT", ["GSSAPI"], properties=own),
        TLS: LocalSecurity("SASL_SSL", ["GSSAPI"], properties=own),
    }
    jvm_options = (f"-Djava.security.krb5.conf={kdc.krb5_conf}",)
    with PatientKafka(2, security=security, jvm_options=jvm_options) as kafka:
        yield kafka


@pytest.fixture(scope="module", autouse=True)
def environment(kdc):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def spark(environment):
    """Its workers have the environment in which it was started."""
    with spark_session() as session:
        yield session


def options_of(kafka, listener, login):
    return {
        **kafka.client_options(listener=listener),
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": f"{MODULE} {login};",
    }


def keytab_login(keytab, principal="alice"):
    return f'useKeyTab=true keyTab="{keytab}" principal="{principal}@{REALM}"'


@pytest.mark.parametrize("listener", [PLAIN, TLS])
def test_with_a_keytab(kerberized, client_keytab, listener):
    kerberized.create_topic(f"keytab-{listener}", 4, replication_factor=1)
    options = options_of(kerberized, listener, keytab_login(client_keytab))
    write(options, f"keytab-{listener}")
    assert values_in(kerberized, f"keytab-{listener}") == sorted(VALUES)


@pytest.mark.slow
def test_a_batch_of_spark(kerberized, client_keytab, spark):
    """Driver and tasks log in, each process for itself."""
    kerberized.create_topic("spark", 4, replication_factor=1)
    options = options_of(kerberized, TLS, keytab_login(client_keytab))
    save(numbers(spark), "pykafka-sink", "spark", options)
    assert [int(value) for value in values_in(kerberized, "spark")] == sorted(range(ROWS), key=str)


class TestRefusals:
    """By real brokers and a real KDC, told within one attempt: no timeout ends before an hour."""

    def told(self, options):
        with pytest.raises(AuthenticationError) as raised:
            write(options, "unused")
        return str(raised.value)

    def test_a_service_that_the_kdc_does_not_know(self, kerberized, client_keytab):
        options = options_of(kerberized, PLAIN, keytab_login(client_keytab))
        options["kafka.sasl.kerberos.service.name"] = "other"
        tells(self.told(options), "the broker's principal", "kafka.sasl.kerberos.service.name")

    def test_a_service_that_is_not_the_brokers(self, kerberized, client_keytab, kdc):
        kdc.keytab("http/127.0.0.1")
        options = options_of(kerberized, PLAIN, keytab_login(client_keytab))
        options["kafka.sasl.kerberos.service.name"] = "http"
        tells(self.told(options), *REFUSED)

    @pytest.mark.parametrize("settings", [["kdc_timesync = 0"], []])
    @pytest.mark.parametrize("ahead_s", AN_HOUR_APART)
    def test_clocks(self, kerberized, kdc, monkeypatch, ahead_s, settings):
        """This side takes the KDC's time, unless its settings keep it from that."""
        with kdc.another(ahead_s, *settings) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            # Of a principal that has no ticket of the other KDC.
            name = f"client{ahead_s}{len(settings)}"
            login = keytab_login(kdc.keytab(name), name)
            told = self.told(options_of(kerberized, PLAIN, login))
        tells(told, *(("Clock skew too great", "synchronise them (NTP)") if settings else REFUSED))
