"""What a release checks of its version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.version import ROOT, package_version, problems

FILES = ("CHANGELOG.md", "spark_kafka_sink/__init__.py", "release/recipe/recipe.yaml")


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The files that name the version, as they are when it is tagged."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    line = f"## [{package_version()}] - 2026-12-01"
    text = changelog.read_text(encoding="utf-8").replace("## [Unreleased]", line, 1)
    changelog.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_tag_that_fits(released: Path) -> None:
    assert list(problems(f"v{package_version()}", released)) == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_forgotten(released: Path, name: str) -> None:
    text = (released / name).read_text(encoding="utf-8")
    changed = text.replace(package_version(), "99.0.0")
    assert changed != text
    (released / name).write_text(changed, encoding="utf-8")
    [problem] = problems(f"v{package_version()}", released)
    assert name in problem


@pytest.mark.parametrize("tag", ["0.1.0", "v0.1", "version-0.1.0", "v0.1.0-rc1"])
def test_tags_of_another_form(released: Path, tag: str) -> None:
    assert any("is not v and a version" in problem for problem in problems(tag, released))


def test_the_command_tells_all_reasons() -> None:
    command = [sys.executable, "-m", "release.version", "v99.0.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 3


def test_the_classifiers_begin_with_the_oldest_python() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", text)
    assert f'requires-python = ">={versions[0]}"' in text
    minors = [int(version.partition(".")[2]) for version in versions]
    assert minors == list(range(minors[0], minors[-1] + 1))
    recipe = (ROOT / "release" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'python_min: "{versions[0]}"' in recipe


def test_licences_are_told_of_every_dependency() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    names = re.findall(r'"([\w-]+)>=', section)
    rows = re.findall(r"^\| ([\w-]+) \|", (ROOT / "THIRD-PARTY.md").read_text("utf-8"), re.M)
    assert len(names) >= 8
    assert set(names) <= set(rows)


def test_the_recipe_has_the_bounds_of_the_package() -> None:
    """Rendered by make test-publishing; here as text."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    bounds = re.findall(r'"([\w-]+)(>=[\d.]+)"', section)
    recipe = (ROOT / "release" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert len(bounds) >= 8
    for name, bound in bounds:
        assert re.search(rf"^    - (python-)?{name} {bound}$", recipe, re.MULTILINE), name
