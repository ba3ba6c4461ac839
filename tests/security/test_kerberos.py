"""SASL GSSAPI from the producer to real brokers, with a real KDC.

Needs what ``make kerberos`` says. Skipped without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from tests.local_kafka import PatientKafka
from tests.security.kdc import REALM, Kdc, missing_programs
from tests.security.stores import Options
from tests.security.writing import VALUES, values_in, write

pytest.importorskip("gssapi", reason="the package gssapi is not installed")
pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}")

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
PLAIN, TLS = "KERBEROS", "KERBEROS_TLS"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    with kdc.running():
        yield kdc


@pytest.fixture(scope="module")
def client_keytab(kdc: Kdc) -> Path:
    return kdc.keytab("alice")


@pytest.fixture(scope="module")
def kerberized(kdc: Kdc) -> Iterator[LocalKafka]:
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


@pytest.fixture(autouse=True)
def environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


def options_of(kafka: LocalKafka, listener: str, login: str) -> Options:
    return {
        **kafka.client_options(listener=listener),
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": f"{MODULE} {login};",
    }


@pytest.mark.parametrize("listener", [PLAIN, TLS])
def test_with_a_keytab(kerberized: LocalKafka, client_keytab: Path, listener: str) -> None:
    login = f'useKeyTab=true keyTab="{client_keytab}" principal="alice@{REALM}"'
    kerberized.create_topic(f"keytab-{listener}", 4, replication_factor=1)
    write(options_of(kerberized, listener, login), f"keytab-{listener}")
    assert values_in(kerberized, f"keytab-{listener}") == sorted(VALUES)


@pytest.mark.parametrize("listener", [PLAIN, TLS])
def test_with_a_ticket_cache(
    kerberized: LocalKafka, kdc: Kdc, client_keytab: Path, listener: str
) -> None:
    cache = kdc.ticket_cache("alice", client_keytab)
    login = f'useTicketCache=true ticketCache="{cache}" principal="alice@{REALM}"'
    kerberized.create_topic(f"cache-{listener}", 4, replication_factor=1)
    write(options_of(kerberized, listener, login), f"cache-{listener}")
    assert values_in(kerberized, f"cache-{listener}") == sorted(VALUES)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"kafka.sasl.kerberos.service.name": "other"}, ["kafka.sasl.kerberos.service.name"]),
        (
            {"kafka.sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="/nowhere" principal="a";'},
            ["kafka.sasl.jaas.config", "/nowhere"],
        ),
    ],
)
def test_what_is_wrong_is_told(
    kerberized: LocalKafka, client_keytab: Path, changed: Options, parts: list[str]
) -> None:
    login = f'useKeyTab=true keyTab="{client_keytab}" principal="alice@{REALM}"'
    with pytest.raises(KafkaSinkError) as raised:
        write({**options_of(kerberized, PLAIN, login), **changed}, "unused")
    for part in parts:
        assert part in str(raised.value)
