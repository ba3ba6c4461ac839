"""Strings and bytes as JSON has them. Helpers of kernels.

Source: Jackson's ``JsonGenerator`` as Spark uses it: hexadecimal digits of escapes are capitals,
and nothing beyond ASCII is escaped. Bytes that are not UTF-8 become U+FFFD, as many as in Java's
``String(byte[], UTF_8)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_kafka_sink.record.kernels.declared import called, inlined
from spark_kafka_sink.record.kernels.memory import (
    load_uint8,
    load_uint32,
    load_uint64,
    store_uint8,
    store_uint16,
    store_uint32,
    store_uint64,
)

MOST_ESCAPED = 6
"""Bytes that one byte of a string becomes at most."""

_ONES = 0x0101010101010101
_HIGHS = 0x8080808080808080
_REPLACEMENT = 0xBDBFEF  # U+FFFD in UTF-8, little-endian
_UNICODE_ESCAPE = 0x3030755C  # \u00
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).copy()


def _short_escapes() -> Any:
    table = np.zeros(256, np.uint16)
    for char, escaped in (("\b", "b"), ("\t", "t"), ("\n", "n"), ("\f", "f"), ("\r", "r")):
        table[ord(char)] = ord("\\") | ord(escaped) << 8
    for char in '"\\':
        table[ord(char)] = ord("\\") | ord(char) << 8
    return table


_SHORT_ESCAPES = _short_escapes()


@inlined
def _has_special(word: Any) -> bool:
    """Is one of eight bytes a control character, a quote, a backslash, or beyond ASCII?"""
    ones = np.uint64(_ONES)
    quotes = word ^ (np.uint64(0x22) * ones)
    backslashes = word ^ (np.uint64(0x5C) * ones)
    found = (word - np.uint64(0x20) * ones) | (quotes - ones) | (backslashes - ones) | word
    return (found & np.uint64(_HIGHS)) != np.uint64(0)


@inlined
def _put_plain(at: int, source: int, count: int) -> bool:
    """Copy a string that needs no escapes. False, with anything written, if it does."""
    if count >= 8:
        last = source + count - 8
        position = source
        while position < last:
            word = load_uint64(position)
            store_uint64(at + (position - source), np.int64(word))
            if _has_special(word):
                return False
            position += 8
        word = load_uint64(last)
        store_uint64(at + count - 8, np.int64(word))
        return not _has_special(word)
    if count >= 4:
        first, second = np.uint64(load_uint32(source)), np.uint64(load_uint32(source + count - 4))
        store_uint32(at, np.int64(first))
        store_uint32(at + count - 4, np.int64(second))
        return not _has_special(first | (second << np.uint64(32)))
    word = np.uint64(0x2020202020202020)
    for position in range(count):
        byte = load_uint8(source + position)
        store_uint8(at + position, np.int64(byte))
        word = (word << np.uint64(8)) | np.uint64(byte)
    return not _has_special(word)


@called
def put_string(at: int, source: int, count: int) -> int:
    """Write a string in quotes: at most MOST_ESCAPED bytes for each of its own, and 2."""
    store_uint8(at, 34)
    at += 1
    at = at + count if _put_plain(at, source, count) else _put_escaped(at, source, count)
    store_uint8(at, 34)
    return at + 1


@called
def _put_escaped(at: int, source: int, count: int) -> int:
    end = source + count
    while source < end:
        while source + 8 <= end:
            word = load_uint64(source)
            if _has_special(word):
                break
            store_uint64(at, np.int64(word))
            at += 8
            source += 8
        # Up to the next eight bytes that may be plain.
        stop = min(source + 8, end)
        while source < stop:
            byte = np.int64(load_uint8(source))
            if byte >= 128:
                length = _character_bytes(source, end, byte)
                if length > 0:
                    for position in range(length):
                        store_uint8(at + position, np.int64(load_uint8(source + position)))
                    at += length
                    source += length
                else:
                    store_uint32(at, _REPLACEMENT)
                    at += 3
                    source -= length
            elif byte >= 32 and byte != 34 and byte != 92:
                store_uint8(at, byte)
                at += 1
                source += 1
            else:
                at = _put_escape(at, byte)
                source += 1
    return at


@inlined
def _put_escape(at: int, byte: int) -> int:
    short = np.int64(_SHORT_ESCAPES[np.uint64(byte)])
    if short != 0:
        store_uint16(at, short)
        return at + 2
    store_uint32(at, _UNICODE_ESCAPE)
    store_uint8(at + 4, np.int64(_HEX[np.uint64(byte >> 4)]))
    store_uint8(at + 5, np.int64(_HEX[np.uint64(byte & 15)]))
    return at + 6


@inlined
def _continues(at: int, end: int) -> bool:
    return at < end and (np.int64(load_uint8(at)) & 0xC0) == 0x80


@called
def _character_bytes(at: int, end: int, byte: int) -> int:
    """Bytes of the character that begins with ``byte``, 128 and more.

    Negative if it is none: how many bytes become one U+FFFD.
    """
    if 0xC2 <= byte < 0xE0:
        return np.int64(2) if _continues(at + 1, end) else np.int64(-1)
    if byte < 0xC2 or byte > 0xF4:
        return np.int64(-1)
    if not _continues(at + 1, end):
        return np.int64(-1)
    second = np.int64(load_uint8(at + 1))
    if byte < 0xF0:
        if byte == 0xE0 and second < 0xA0:
            return np.int64(-1)
        if not _continues(at + 2, end):
            return np.int64(-2)
        return np.int64(-3) if byte == 0xED and second >= 0xA0 else np.int64(3)
    if (byte == 0xF0 and second < 0x90) or (byte == 0xF4 and second >= 0x90):
        return np.int64(-1)
    if not _continues(at + 2, end):
        return np.int64(-2)
    return np.int64(4) if _continues(at + 3, end) else np.int64(-3)


@called
def put_text(at: int, source: int, count: int) -> bool:
    """Copy a string. False if it is not UTF-8."""
    seen = np.uint64(0)
    if count >= 8:
        last = source + count - 8
        position = source
        while position < last:
            word = load_uint64(position)
            store_uint64(at + (position - source), np.int64(word))
            seen |= word
            position += 8
        word = load_uint64(last)
        store_uint64(at + count - 8, np.int64(word))
        seen |= word
    else:
        for position in range(count):
            byte = load_uint8(source + position)
            store_uint8(at + position, np.int64(byte))
            seen |= np.uint64(byte)
    if (seen & np.uint64(_HIGHS)) == np.uint64(0):
        return True
    here, end = source, source + count
    while here < end:
        byte = np.int64(load_uint8(here))
        length = np.int64(1) if byte < 128 else _character_bytes(here, end, byte)
        if length < 0:
            return False
        here += length
    return True


@called
def put_base64(at: int, source: int, count: int) -> int:
    """Write bytes as Base64 in quotes, padded: 4 for each 3, begun or whole, and 2."""
    store_uint8(at, 34)
    at += 1
    for position in range(0, count - 2, 3):
        here = source + position
        high, middle = np.int64(load_uint8(here)), np.int64(load_uint8(here + 1))
        bits = (high << 16) | (middle << 8) | np.int64(load_uint8(here + 2))
        _put_four(at, bits)
        at += 4
    rest = count % 3
    if rest > 0:
        here = source + count - rest
        bits = np.int64(load_uint8(here)) << 16
        if rest == 2:
            bits |= np.int64(load_uint8(here + 1)) << 8
        _put_four(at, bits)
        store_uint8(at + 3, 61)
        if rest == 1:
            store_uint8(at + 2, 61)
        at += 4
    store_uint8(at, 34)
    return at + 1


@inlined
def _put_four(at: int, bits: int) -> None:
    word = np.int64(_BASE64[np.uint64(bits >> 18)])
    word |= np.int64(_BASE64[np.uint64((bits >> 12) & 63)]) << 8
    word |= np.int64(_BASE64[np.uint64((bits >> 6) & 63)]) << 16
    word |= np.int64(_BASE64[np.uint64(bits & 63)]) << 24
    store_uint32(at, word)
