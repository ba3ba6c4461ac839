"""The workflow files for a public host: valid, with the rights that they need, and with targets that exist."""

import re
import subprocess
import sys

import pytest
import yaml

from release.version import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow):
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


def test_there_are_two():
    assert [path.stem for path in WORKFLOWS] == ["release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_it_has_the_form_of_a_workflow(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += ["vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_ends_and_may_only_read_unless_it_says_so(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        assert job.get("permissions", {}) in ({}, {"contents": "write"}), name
        assert ("permissions" in job) == (name == "draft")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_are_targets_of_make_or_scripts_that_exist(path):
    targets = re.findall(
        r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    own = [one for one in commands(read(path)) if not one.startswith(("sudo apt-get", "gh "))]
    assert own
    for command in own:
        program, *arguments = command.split()
        if program == "make":
            assert set(arguments) <= set(targets), command
        else:
            assert (ROOT / program).is_file(), command


def test_tests_run_on_two_pythons_and_wheels_are_built_on_two_platforms():
    jobs = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    assert len(jobs["test"]["strategy"]["matrix"]["python"]) == 2
    assert "make test" in commands({"jobs": {"test": jobs["test"]}})
    platforms = jobs["wheels"]["strategy"]["matrix"]["include"]
    assert [one["platform"] for one in platforms] == ["x86_64", "aarch64"]
    assert "make wheel" in commands({"jobs": {"wheels": jobs["wheels"]}})


def test_a_release_is_a_draft():
    done = commands(read(ROOT / ".github" / "workflows" / "release.yml"))
    assert ".ci/release" in done
    assert "--draft" in done[-1]
