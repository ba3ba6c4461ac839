"""The wheel, and what Spark finds when pyspark is missing or too old."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from release.version import ROOT, package_version, problems
from spark_kafka_sink.record.compiled.library import library_name, platform_name
from spark_kafka_sink.record.kernels.sources import COMPILER, PLATFORMS

SOURCES_OF_KERNELS = ROOT / "spark_kafka_sink" / "record" / "kernels"

FAKE_DATASOURCE = """
class DataSource:
    def __init__(self, options): self.options = options
"""


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_the_module_that_spark_looks_for(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    expected = {"spark_kafka_sink", "pyspark_kafka_sink.py", "pyspark_kafka_sink-stubs"}
    assert expected < tops
    assert tops - expected == {top for top in tops if top.endswith(".dist-info")}
    modules = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "spark_kafka_sink").rglob("*.py")
        if not p.is_relative_to(SOURCES_OF_KERNELS)
    }
    assert modules <= set(names)
    assert "spark_kafka_sink/py.typed" in names
    for asset in ("page.css", "page.js", "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"):
        assert f"spark_kafka_sink/tools/assets/{asset}" in names
    for folder in ("jobs", "conf", "docs"):
        files = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.*")}
        files = {path for path in files if "__pycache__" not in path.parts}
        assert {f"spark_kafka_sink/share/{path}" for path in files} <= set(names)


@pytest.mark.slow
def test_the_wheel_holds_the_kernels_of_the_platforms_that_its_name_tells(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = (n for n in names if n.endswith("METADATA"))
        metadata = archive.read(name).decode()
    libraries = {name.rpartition("/")[2] for name in names if name.endswith(".so")}
    everywhere = {library_name(platform) for platform in PLATFORMS}
    assert library_name(platform_name()) in libraries
    assert wheel.name.endswith("-py3-none-any.whl") == (libraries == everywhere)
    assert not any(name.startswith("spark_kafka_sink/record/kernels/") for name in names)
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    always = {line.split()[1].split(">")[0] for line in required if "extra" not in line}
    expected = "pyarrow numpy lz4 zstandard crc32c isal mmh3 cryptography"
    assert always == {*expected.split()}, "pyspark is only an extra"


def test_dependencies_have_lower_bounds_a_licence_and_a_place_in_the_recipe():
    """The recipe is rendered by make evidence NAME=publishing; here it is a text."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, needed = project["optional-dependencies"], project["dependencies"]
    for extra in ("dev", "bench", "release"):
        assert set(COMPILER) <= {one.partition(";")[0] for one in extras[extra]}
    assert not any(one.startswith(("numba", "llvmlite")) for one in needed)
    assert {one.partition(">=")[0] for one in extras["spark"]} == {"pyspark", "pandas"}
    assert "[spark]" in (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w-]+) \|", (ROOT / "THIRD-PARTY.md").read_text("utf-8"), re.M)
    recipe = (ROOT / "release" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    for one in needed:
        name, bound, version = re.match(r"([\w-]+)(>=)([\d.]+)", one).groups()
        assert name in rows
        assert re.search(rf"^    - (python-)?{name} {bound}{version}$", recipe, re.M), name
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: 3." in one]
    assert project["requires-python"] == f">={pythons[0]}" == ">=3.9"
    assert pythons == [f"3.{9 + n}" for n in range(len(pythons))]
    assert f'python_min: "{pythons[0]}"' in recipe


@pytest.mark.slow
def test_the_install_commands_of_the_readme_work(wheel, tmp_path):
    """All but the download: nothing is installed."""
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Install\n")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(commands) == 2
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    pip = f"{sys.executable} -m pip install --dry-run --no-deps --ignore-installed"
    for command in commands:
        run = subprocess.run(
            command.replace("pip install", pip),
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert "Would install pykafka-sink" in run.stdout


def run_with_pyspark(folder, version, code):
    package = folder / "pyspark"
    (package / "sql").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{version}"')
    (package / "sql" / "__init__.py").write_text("")
    (package / "sql" / "datasource.py").write_text(FAKE_DATASOURCE)
    path = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n"
    return subprocess.run(
        [sys.executable, "-c", path + code], capture_output=True, text=True, check=False
    )


WRITE, REGISTER = "source.writer(None, False)", "pyspark_kafka_sink.register(None)"
IN_BATCHES = "foreachBatch(spark_kafka_sink.batch_writer(options))"


@pytest.mark.parametrize(
    ("version", "call", "messages"),
    [
        ("3.4.4", WRITE, ["pykafka-sink needs pyspark 3.5 or newer"]),
        ("3.5.6", WRITE, ["format('pykafka-sink') needs Spark 4.0 or newer"]),
        ("3.5.6", REGISTER, ["spark_kafka_sink.write(df, options)", IN_BATCHES]),
    ],
)
def test_a_pyspark_that_is_too_old_is_named_when_the_sink_is_used(
    tmp_path, version, call, messages
):
    code = f"""
import pyspark_kafka_sink
source = pyspark_kafka_sink.DefaultSource({{}})
assert source.name() == "pykafka-sink"
{call}
"""
    run = run_with_pyspark(tmp_path, version, code)
    assert run.returncode != 0
    assert [message for message in messages if message not in run.stderr] == []
    assert f"this is pyspark {version}" in run.stderr


def test_without_pyspark_the_import_says_what_is_missing(tmp_path):
    # -S: no site-packages, as on a machine without pyspark.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport pyspark_kafka_sink\nimport spark_kafka_sink.spark.source"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "pykafka-sink needs pyspark 3.5 or newer" in run.stderr


def test_the_names_of_the_package_are_there_without_pyspark_and_say_so_when_called(tmp_path):
    """Whatever looks at a module's names, such as hasattr and inspect, expects no ImportError."""
    code = """
import inspect
import spark_kafka_sink
assert {"configure", "write", "batch_writer"} <= {name for name, _ in inspect.getmembers(spark_kafka_sink)}
assert not hasattr(spark_kafka_sink, "read")
from spark_kafka_sink import batch_writer, write
for call in (lambda: write(None, {}), lambda: batch_writer(options={})):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    run = run_with_pyspark(tmp_path, "3.4.4", code)
    said = "pykafka-sink needs pyspark 3.5 or newer; this is pyspark 3.4.4"
    assert run.stderr == ""
    assert run.stdout.splitlines() == [said, said]


FILES = (
    *("CHANGELOG.md", "spark_kafka_sink/__init__.py", "release/recipe/recipe.yaml"),
    *("README.md", "docs/clusters.md"),
)


@pytest.fixture
def released(tmp_path):
    """The files that name the version, as they are when it is tagged."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    line = f"## [{package_version()}] - 2026-12-01"
    text = changelog.read_text(encoding="utf-8").replace("## [Unreleased]", line, 1)
    changelog.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_forgotten(released, name):
    tag = f"v{package_version()}"
    assert list(problems(tag, released)) == []
    for wrong in (tag[1:], "v0.1", f"version-{tag[1:]}", f"{tag}-rc1"):
        assert any("is not v and a version" in one for one in problems(wrong, released))
    text = (released / name).read_text(encoding="utf-8")
    changed = text.replace(package_version(), "99.0.0")
    assert changed != text
    (released / name).write_text(changed, encoding="utf-8")
    [problem] = problems(tag, released)
    assert name in problem


def test_the_command_tells_all_reasons():
    command = [sys.executable, "-m", "release.version", "v99.0.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == len(FILES)
