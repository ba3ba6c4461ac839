"""The hook of hatchling that builds the kernels' libraries for the package.

An existing library of these sources is used, so wheels and environments built from an sdist need no
compiler. Otherwise the hook builds the library of this platform; ``make kernels`` builds all.
"""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = Path("spark_kafka_sink")
_RECORD = _PACKAGE / "record"
_BUILD = "spark_kafka_sink.record.kernels.build"


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds missing libraries, and names the platforms of a wheel."""

    def dependencies(self) -> list[str]:
        """Return the compiler's packages, if the hook has to compile."""
        sources = self._sources()
        if self._own().name in self._current() or sys.version_info < sources["OLDEST_PYTHON"]:
            return []
        return list(sources["COMPILER"])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library of this platform; stop the build if that fails."""
        own = self._own()
        if own.name not in self._current():
            self.app.display_waiting("building kernels, about a minute")
            # pip puts the compiler's packages on this path.
            path = os.pathsep.join(filter(None, (self.root, os.environ.get("PYTHONPATH"))))
            done = subprocess.run(
                [sys.executable, "-m", _BUILD, own.stem.partition("-")[2]],
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": path},
                check=False,
            )
            if done.returncode:
                self.app.abort("the kernels of pykafka-sink cannot be built: the reason is above")
        current = self._current()
        for path in self._libraries():
            if path.name not in current:
                path.unlink()
        all_names = {f"kernels-{one}.so" for one in self._sources()["PLATFORMS"]}
        if self.target_name == "wheel" and version == "standard" and not current >= all_names:
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data.update(pure_python=False, tag=f"py3-none-{here}")

    def _sources(self) -> dict[str, Any]:
        """Return the names in the kernels' ``sources``; the package cannot be imported yet."""
        return runpy.run_path(str(Path(self.root, _RECORD, "kernels", "sources.py")))

    def _libraries(self) -> list[Path]:
        return sorted(Path(self.root, _RECORD, "compiled").glob("kernels-*.so"))

    def _current(self) -> set[str]:
        """Return the names of the libraries that were built from these sources."""
        symbol = self._sources()["symbol"](Path(self.root, _RECORD)).encode()
        return {path.name for path in self._libraries() if symbol in path.read_bytes()}

    def _own(self) -> Path:
        """Return the platform's library as ``library`` does, which cannot be imported yet."""
        return Path(f"kernels-{sys.platform}-{platform.machine().lower()}.so")
