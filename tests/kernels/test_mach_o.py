"""The libraries for macOS, which no test runs on macOS: what its loader demands of the files, and the
same machine code on this processor.
"""

import hashlib
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.record.compiled.calls import KERNELS
from spark_kafka_sink.record.kernels.build import linker_for
from spark_kafka_sink.record.kernels.sources import symbol
from tests.kernels.mach_o import OF_THE_LOADER, library_of, parsed

ROOT = Path(__file__).parents[2]
# Of xnu's cs_blobs.h, and big-endian as the whole signature.
SUPER_BLOB, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
AD_HOC, SHA256, PAGE_BITS = 0x2, 2, 12

pytestmark = pytest.mark.skipif(not linker_for("darwin-arm64"), reason="lld is not installed")


@pytest.mark.parametrize("processor", ["arm64", "x86_64"])
def test_the_library_has_what_macos_demands_and_needs_nothing_else(processor):
    library = parsed(library_of(processor))
    exported = {one.name for one in library.exported_symbols}
    assert exported == {f"_{name}" for name in (*KERNELS, symbol())}
    assert {one.name for one in library.imported_symbols} - {OF_THE_LOADER} == {"_memmove"}
    assert [one.name for one in library.libraries] == [
        "@rpath/kernels.so",
        "/usr/lib/libSystem.B.dylib",
    ]
    assert library.build_version.platform.name == "MACOS"
    assert list(library.build_version.minos)[:2] == [11, 0]
    assert library.header.cpu_type.name == processor.upper()


def test_the_signature_is_that_of_the_file():
    """Apple's processors run no page of code whose digest is not in the signature."""
    path = library_of("arm64")
    content = path.read_bytes()
    found = parsed(path).code_signature
    signature = content[found.data_offset : found.data_offset + found.data_size]
    magic, _, count, _, directory_at = struct.unpack_from(">5I", signature)
    assert (magic, count) == (SUPER_BLOB, 1)
    directory = signature[directory_at:]
    magic, _, _, flags, digests_at, _, _, pages, limit = struct.unpack_from(">9I", directory)
    assert (magic, flags & AD_HOC, limit) == (CODE_DIRECTORY, AD_HOC, found.data_offset)
    size, kind, _, page_bits = struct.unpack_from("4B", directory, 36)
    assert (size, kind, page_bits) == (32, SHA256, PAGE_BITS)
    digests = [directory[digests_at + size * n :][:size] for n in range(pages)]
    starts = range(0, limit, 1 << PAGE_BITS)
    assert digests == [
        hashlib.sha256(content[start : min(start + (1 << PAGE_BITS), limit)]).digest()
        for start in starts
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS loads the library itself")
def test_its_code_writes_the_records_of_javas_client():
    """On this processor; `make test-aarch64` has the other one."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kernels.mach_o"]
    command += ["-p", "no:cacheprovider", "-o", "addopts=", "tests/golden/test_batches.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "kernels: <tests.kernels.mach_o.Image object" in done.stdout
