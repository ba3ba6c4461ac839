"""A release: its files, its types, its recipe and its bill of materials. ``make evidence NAME=publishing``."""

import json
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

from release.dist import ROOT, ReleaseError, build_twice, check_metadata, sums
from release.sbom import write_sbom
from release.version import package_version
from spark_kafka_sink.record.compiled.library import library_name
from spark_kafka_sink.record.kernels.sources import PLATFORMS

pytestmark = pytest.mark.timeout(3600)
USER = """\
import pyspark_kafka_sink
from spark_kafka_sink.localkafka import LocalKafka

with LocalKafka() as kafka:
    reveal_type(kafka.bootstrap_servers)
pyspark_kafka_sink.register(1)
"""
# Where conda-forge's name is another than the package index's.
CONDA_NAMES = {"isal": "python-isal"}


def run(*command, cwd):
    """Without the checkout on the path."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )


def fresh_python(folder, *packages):
    """A virtual environment with ``packages``."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--quiet", *packages)
    done = run(sys.executable, *install, cwd=folder)
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """wheel and sdist of the last commit."""
    built = build_twice("HEAD", tmp_path_factory.mktemp("dist"))
    return {"wheel" if path.suffix == ".whl" else "sdist": path for path in built}


@pytest.fixture(scope="module")
def unpacked(files, tmp_path_factory):
    """The folder that is in the sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(files["sdist"]) as archive:
        archive.extractall(folder, filter="data")
    [found] = folder.iterdir()
    return found


def test_the_wheel_has_the_kernels_of_all_platforms(files):
    """And the sdist, from which that wheel was built."""
    with zipfile.ZipFile(files["wheel"]) as archive:
        found = {name for name in archive.namelist() if name.endswith(".so")}
    folder = "spark_kafka_sink/record/compiled"
    assert found == {f"{folder}/{library_name(platform)}" for platform in PLATFORMS}


def test_two_builds_are_the_same_and_the_package_index_takes_them(files):
    check_metadata(list(files.values()))
    lines = sums(list(files.values())).splitlines()
    version = package_version()
    assert [line.split("  ")[1] for line in lines] == [
        f"pykafka_sink-{version}-py3-none-any.whl",
        f"pykafka_sink-{version}.tar.gz",
    ]


def test_builds_that_differ_are_refused(tmp_path, monkeypatch):
    """The comparison sees a difference: here the second build's times are others."""
    import release.dist as dist

    build = dist._build

    def at_another_time(source, output, number, epoch, *kinds):
        build(source, output, number, str(int(epoch) + 2 * number), *kinds)

    monkeypatch.setattr(dist, "_build", at_another_time)
    with pytest.raises(ReleaseError, match=r"two builds differ in pykafka_sink-.*whl, .*tar\.gz"):
        build_twice("HEAD", tmp_path)


def test_metadata_that_the_package_index_would_not_show_is_refused(tmp_path):
    with pytest.raises(ReleaseError, match="twine check"):
        check_metadata([tmp_path / "pykafka_sink-0.1.0.tar.gz"])


def test_the_sdist_holds_every_file_of_the_commit(unpacked):
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    packed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    kernels = {f"spark_kafka_sink/record/compiled/{library_name(one)}" for one in PLATFORMS}
    assert set(listed.splitlines()) == packed - {"PKG-INFO"} - kernels


def test_unit_tests_run_from_the_sdist(unpacked, tmp_path):
    python = fresh_python(tmp_path / "python", f"{unpacked}[dev]", "pip")
    done = run(python, "-m", "pytest", "-q", "-n", "2", "tests/unit", cwd=unpacked)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("other", ["", "pyspark"], ids=["alone", "with pyspark"])
def test_users_get_types(files, tmp_path, other):
    packages = [files["wheel"], "mypy", *other.split()]
    python = fresh_python(tmp_path / "python", *packages)
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    done = run(python, "-m", "mypy", "--strict", "user.py", cwd=tmp_path)
    assert 'Revealed type is "str"' in done.stdout
    assert "import-untyped" not in done.stdout
    refused = 'user.py:6: error: Argument 1 to "register" has incompatible type "int"'
    assert (refused in done.stdout) == bool(other), done.stdout


def normal_name(requirement):
    name = re.split(r"[\s<>=;\[]", requirement, maxsplit=1)[0]
    return CONDA_NAMES.get(name, name)


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64", "osx-arm64"])
def test_the_recipe_is_conda_forges_and_needs_what_the_wheel_needs(platform):
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = Stage0Recipe.from_file(ROOT / "release" / "recipe" / "recipe.yaml")
    config = RenderConfig(platform=PlatformConfig(target_platform=platform))
    [variant] = recipe.render(VariantConfig(), config)
    rendered = variant.recipe.to_dict()
    assert rendered["package"] == {"name": "pykafka-sink", "version": package_version()}
    needed = {
        f"{normal_name(requirement)} {requirement[requirement.index('>=') :]}"
        for requirement in project["dependencies"]
    }
    needed.add(f"python {project['requires-python']}")
    assert set(rendered["requirements"]["run"]) == needed
    spark, _ = project["optional-dependencies"]["spark"]
    assert rendered["requirements"]["run_constraints"] == [spark.replace(">=", " >=")]


def test_the_bill_of_materials_and_the_licences(files, tmp_path):
    output = tmp_path / "sbom.json"
    write_sbom(files["wheel"], output)
    text = output.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("pykafka-sink", package_version())
    listed = (ROOT / "THIRD-PARTY.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z][\w-]+) \| ([^|]+) \|", listed, re.MULTILINE))
    del rows["package"]
    assert rows.keys() == {component["name"] for component in document["components"]}
    for component in document["components"]:
        for entry in component.get("licenses", ()):
            known = entry.get("expression") or entry["license"].get("id")
            for spdx in re.split(r" (?:AND|OR) ", known or ""):
                assert spdx in rows[component["name"]], component["name"]
