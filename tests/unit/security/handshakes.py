"""Handshakes in memory: what a client's context makes of a server's, and a server of a client."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from spark_kafka_sink.security.tls import private_file

ENOUGH_TURNS = 6


class Outcome(NamedTuple):
    """What both sides agreed on, or the client's error. peer: the client's name to the server."""

    version: str | None = None
    cipher: str | None = None
    peer: str | None = None
    error: ssl.SSLError | None = None


def server_context(identity, clients=None, version=ssl.TLSVersion.TLSv1_3):
    """clients: whose certificates are required; None if none are. version: the only one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    with private_file(identity.pem().encode()) as path:
        context.load_cert_chain(path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem)
    return context


def handshake(client, server, host="localhost"):
    """Until both are done, and the client has read a byte that the server sent after it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(ENOUGH_TURNS):
        try:
            near.do_handshake() if "near" not in done else near.read(1)
            done.add("near" if "near" not in done else "all")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return Outcome(error=error)
        if "far" not in done:
            try:
                far.do_handshake()
                far.write(b"x")
                done.add("far")
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                done.add("far")  # its alert is in the buffer, for the client
    assert "all" in done
    cipher = near.cipher()
    return Outcome(near.version(), cipher[0] if cipher else None, _name(far.getpeercert()))


def _name(certificate):
    """The common name of who sent a certificate; None without one."""
    if not certificate:
        return None
    subject = certificate["subject"]
    assert isinstance(subject, tuple)
    return str(dict(part[0] for part in subject)["commonName"])
