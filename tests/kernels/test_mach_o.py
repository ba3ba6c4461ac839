"""The libraries for macOS, which no test runs on macOS: what its loader demands of the files, and the
same machine code on this processor.
"""

import hashlib
import json
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from spark_kafka_sink.record.compiled.calls import KERNELS
from spark_kafka_sink.record.kernels.build import linker_for
from spark_kafka_sink.record.kernels.sources import symbol
from tests.kernels.mach_o import OF_THE_LOADER, library_of

ROOT = Path(__file__).parents[2]
# Of xnu's cs_blobs.h; a signature is big-endian.
SUPER_BLOB, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
AD_HOC, SHA256, PAGE_BITS = 0x2, 2, 12

pytestmark = pytest.mark.skipif(not linker_for("darwin-arm64"), reason="lld is not installed")


def run(*words):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@cache
def read(processor):
    return json.loads(run("tests.kernels.mach_o", library_of(processor)))


@pytest.mark.parametrize("processor", ["arm64", "x86_64"])
def test_the_library_has_what_macos_demands_and_needs_nothing_else(processor):
    library = read(processor)
    assert library["exported"].keys() == {f"_{name}" for name in (*KERNELS, symbol())}
    assert {*library["imported"]} - {OF_THE_LOADER} == {"_memmove"}
    assert library["libraries"] == ["@rpath/kernels.so", "/usr/lib/libSystem.B.dylib"]
    assert (library["system"], library["oldest"][:2]) == ("MACOS", [11, 0])
    assert library["processor"] == processor


def test_the_signature_is_that_of_the_file():
    """Apple's processors run no page of code whose digest is not in the signature."""
    content = library_of("arm64").read_bytes()
    begin, size = read("arm64")["signature"]
    signature = content[begin : begin + size]
    magic, _, count, _, directory_at = struct.unpack_from(">5I", signature)
    assert (magic, count) == (SUPER_BLOB, 1)
    directory = signature[directory_at:]
    magic, _, _, flags, digests_at, _, _, pages, limit = struct.unpack_from(">9I", directory)
    assert (magic, flags & AD_HOC, limit) == (CODE_DIRECTORY, AD_HOC, begin)
    digest_bytes, kind, _, page_bits = struct.unpack_from("4B", directory, 36)
    assert (digest_bytes, kind, page_bits) == (32, SHA256, PAGE_BITS)
    digests = [directory[digests_at + 32 * page :][:32] for page in range(pages)]
    ends = [*range(1 << PAGE_BITS, limit, 1 << PAGE_BITS), limit]
    found = [content[end - 1 & -1 << PAGE_BITS : end] for end in ends]
    assert digests == [hashlib.sha256(page).digest() for page in found]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS loads the library itself")
def test_its_code_writes_the_records_of_javas_client():
    """On this processor; `make test-aarch64` has the other one."""
    options = ["-p", "tests.kernels.mach_o", "-p", "no:cacheprovider", "-o", "addopts="]
    said = run("pytest", *options, "tests/golden/test_batches.py")
    assert "kernels: <tests.kernels.mach_o.Image object" in said
