"""Chooses the version of an API for a broker, and frames requests.

Source: KIP-35 (ApiVersions), KIP-482 (header versions), KIP-896 (versions dropped by Kafka 4).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from spark_kafka_sink.base.errors import RemoteProtocolError, UnsupportedVersionError
from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest, ApiVersionsResponse

IMPLICIT_PARTITIONS_VERSION = 2
"""transaction.version from which a produce request adds its partitions to the transaction, and the
end of each transaction raises the epoch (KIP-890)."""

IDENTITY_VERSION = 5
"""Version of ApiVersions from which a request names the expected cluster and broker (KIP-1242)."""

_METADATA, _BROKER_HEARTBEAT = 3, 63
_TRANSACTION_VERSION = "transaction.version"
_REQUEST_HEADER = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_SIZE = struct.Struct(">i")
SIZE_BYTES = _SIZE.size


class VersionRange(NamedTuple):
    """Inclusive range of versions of one API."""

    first: int
    last: int


class BrokerApiVersions:
    """The API versions of one broker. Source: ``NodeApiVersions``."""

    def __init__(
        self,
        ranges: Mapping[int, VersionRange],
        finalized_features: Mapping[str, int] | None = None,
    ) -> None:
        self._ranges = dict(ranges)
        self.finalized_features = dict(finalized_features or {})

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature, 0 without it.

        Brokers also advertise versions above the finalized level, which clients must not use yet.
        """
        return self.finalized_features.get(_TRANSACTION_VERSION, 0)

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> BrokerApiVersions:
        ranges = {a.api_key: VersionRange(a.min_version, a.max_version) for a in response.api_keys}
        return cls(ranges, {f.name: f.max_version_level for f in response.finalized_features})

    @property
    def checks_identity(self) -> bool:
        """Return True if the broker rejects connections that were meant for another (KIP-1242)."""
        own = self._ranges.get(ApiVersionsRequest.api_key)
        return own is not None and own.last >= IDENTITY_VERSION

    @property
    def is_controller(self) -> bool:
        """Return True if a KRaft controller's listener answered, which offers no topics."""
        return _BROKER_HEARTBEAT in self._ranges and _METADATA not in self._ranges

    def supports(self, request_type: type[schema.Request]) -> bool:
        return self._common(request_type) is not None

    def offers(self, request_type: type[schema.Request], version: int) -> bool:
        """Return True if the broker offers ``version``, or a newer one, of the API."""
        theirs = self._ranges.get(request_type.api_key)
        return theirs is not None and theirs.last >= version

    def latest_usable_version(
        self, request_type: type[schema.Request], at_most: int | None = None
    ) -> int:
        """Return the highest common version, not above ``at_most``.

        Raises UnsupportedVersionError if the broker has no version in common with this client.
        """
        common = self._common(request_type)
        if common is None or (at_most is not None and at_most < common.first):
            name = request_type.__name__.removesuffix("Request")
            theirs = self._ranges.get(request_type.api_key)
            if theirs is None:
                raise UnsupportedVersionError(
                    f"the broker does not offer {name}: it is older than this request, or a "
                    "service without it"
                )
            is_too_new = theirs.first > request_type.max_version
            needed = "A newer version of this sink" if is_too_new else "Kafka 2.1 or newer"
            raise UnsupportedVersionError(
                f"{name}: this client speaks versions {request_type.min_version} to "
                f"{request_type.max_version}, the broker: {theirs.first} to {theirs.last}. "
                f"{needed} is needed"
            )
        return common.last if at_most is None else min(common.last, at_most)

    def _common(self, request_type: type[schema.Request]) -> VersionRange | None:
        theirs = self._ranges.get(request_type.api_key)
        if theirs is None:
            return None
        first = max(theirs.first, request_type.min_version)
        last = min(theirs.last, request_type.max_version)
        return VersionRange(first, last) if first <= last else None


def fallback_version(response: ApiVersionsResponse, refused_version: int) -> int:
    """Return the ApiVersions version for the retry after ``refused_version``, always a lower one.

    Source: KIP-511.
    """
    for offered in response.api_keys:
        if offered.api_key == ApiVersionsRequest.api_key:
            ranges = {offered.api_key: VersionRange(offered.min_version, offered.max_version)}
            return BrokerApiVersions(ranges).latest_usable_version(
                ApiVersionsRequest, refused_version - 1
            )
    return 0


def encode_request(
    request: schema.Request, version: int, correlation_id: int, client_id: str
) -> list[types.Buffer]:
    """Return a framed request as buffers: size, header, body. Record batches are not copied."""
    out = types.Writer()
    out.tail += bytes(SIZE_BYTES)
    out.tail += _REQUEST_HEADER.pack(request.api_key, version, correlation_id)
    # The client id is not compact, not even in newer header versions; these only add the tags.
    _ENCODE_CLIENT_ID(client_id, out)
    if version >= request.flexible_from:
        types.write_unsigned_varint(0, out.tail)
    schema.encode_message(request, version, out)
    size = out.size_bytes - SIZE_BYTES
    buffers = out.buffers()
    _SIZE.pack_into(buffers[0], 0, size)
    return buffers


_ENCODE_CLIENT_ID = types.string_encoder(compact=False, nullable=True)


def decode_size(data: bytes | bytearray | memoryview) -> int:
    """Return the frame size that the first four bytes announce."""
    (size,) = _SIZE.unpack_from(data)
    return int(size)


def decode_correlation_id(frame: bytes) -> int:
    """Return the correlation id at the head of a response frame."""
    if len(frame) < _CORRELATION_ID.size:
        raise RemoteProtocolError(f"response of {len(frame)} bytes")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    return int(correlation_id)


def decode_response(request: schema.Request, version: int, frame: bytes) -> schema.Message:
    """Return the response to ``request`` from a frame without its size.

    Raises RemoteProtocolError for other content, and for more than the request's limits.
    """
    at = _CORRELATION_ID.size
    is_api_versions = isinstance(request, ApiVersionsRequest)
    # Responses to ApiVersions have the oldest header, so that every client can read them (KIP-511).
    if version >= request.flexible_from and not is_api_versions:
        try:
            at = schema.skip_tags(frame, at)
        except IndexError as error:
            raise RemoteProtocolError("response header cut short") from error
    if is_api_versions:
        if version > 0:
            version = _api_versions_version(frame, at, version)
        body = frame[at:]
        # A large response is not Kafka's, and the cache would keep it as long as the process.
        decode = (
            _decode_api_versions_cached if len(body) <= _MAX_CACHED_BYTES else _decode_api_versions
        )
        return decode(version, body)
    limits = request.limits()
    response = schema.decode_message(request.response_type, version, frame, at, limits.objects)
    request.check_response(response)
    return response


_MAX_CACHED_BYTES = 8 * 1024
"""Kafka 4's response has 600 bytes."""


def _decode_api_versions(version: int, body: bytes) -> schema.Message:
    return schema.decode_message(ApiVersionsResponse, version, body, 0)


@lru_cache(maxsize=16)
def _decode_api_versions_cached(version: int, body: bytes) -> schema.Message:
    """Return the same message for the same bytes, so callers must not change it.

    ApiVersions is the largest of the small responses. Coordinators are asked for it several times
    per commit, and it hardly ever changes.
    """
    return _decode_api_versions(version, body)


def _api_versions_version(frame: bytes, at: int, version: int) -> int:
    """Return the version of the response: 0 for UNSUPPORTED_VERSION, which brokers send as v0."""
    if len(frame) < at + 2:
        raise RemoteProtocolError("ApiVersions response cut short")
    (error_code,) = struct.unpack_from(">h", frame, at)
    return 0 if error_code == UNSUPPORTED_VERSION_CODE else version


UNSUPPORTED_VERSION_CODE = 35
REBOOTSTRAP_REQUIRED_CODE = 129
