"""Check that tag, package, changelog, recipe and documents have one version, for ``.ci/release``.

python -m release.version v1.0.0
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Public versions of PEP 440, without the spellings that tools would normalise.
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.post\d+)?")
_PLACES = {
    "release/recipe/recipe.yaml": '\n  version: "{version}"\n',
    "README.md": "Version {version},",
    "docs/clusters.md": "pykafka_sink-{version}-py3-none-any.whl",
}


def package_version(root: Path = ROOT) -> str:
    """Return the version in ``spark_kafka_sink/__init__.py``, which the build uses."""
    text = (root / "spark_kafka_sink" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError("spark_kafka_sink/__init__.py has no __version__")
    return found[1]


def problems(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Yield a sentence for each place that does not match ``tag``."""
    version = tag.removeprefix("v")
    if not tag.startswith("v") or not _VERSION.fullmatch(version):
        yield f"the tag {tag} is not v and a version, as in v1.0.0 or v1.1.0rc1"
    if package_version(root) != version:
        yield f"spark_kafka_sink/__init__.py says {package_version(root)}"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
    ):
        yield f"CHANGELOG.md has no line '## [{version}] - <date>'"
    for name, text in _PLACES.items():
        if text.format(version=version) not in (root / name).read_text(encoding="utf-8"):
            yield f"{name} has another version"


def main(arguments: list[str]) -> int:
    """Return 0 if all places match, else 1, with the reasons on stderr."""
    if len(arguments) != 1:
        print("usage: python -m release.version <tag>", file=sys.stderr)
        return 2
    found = list(problems(arguments[0]))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
