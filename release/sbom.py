"""``make sbom``: write a CycloneDX bill of materials of an installation of the wheel.

python -m release.sbom dist/pykafka_sink-1.0.0-py3-none-any.whl dist/pykafka-sink.cdx.json

The wheel is installed into an environment of its own, so the versions are those that an
installation of today gets. The extra ``spark`` is omitted, because a cluster brings its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from release.version import ROOT, package_version


def write_sbom(wheel: Path, output: Path) -> None:
    """Write the bill. Raises CalledProcessError if the wheel cannot be installed or described."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python = Path(folder) / "bin" / "python"
        install = ["-m", "pip", "--python", str(python), "install", "--quiet"]
        # No code of a package runs beside the files of the release.
        install += ["--only-binary", ":all:"]
        subprocess.run([sys.executable, *install, str(wheel)], check=True)
        describe = ["-m", "cyclonedx_py", "environment", "--output-reproducible"]
        root = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
        described = subprocess.run(
            [sys.executable, *describe, *root, "--output-format", "JSON", str(python)],
            env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
            check=True,
            stdout=subprocess.PIPE,
        )
    document = json.loads(described.stdout)
    # pyproject.toml has no version; the build reads it from the package.
    document["metadata"]["component"]["version"] = package_version()
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_sbom(Path(sys.argv[1]), Path(sys.argv[2]))
