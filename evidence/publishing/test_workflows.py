"""The workflow files for a public host: valid, with the rights that they need, and with targets that exist."""

import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from release.version import ROOT

# Actions that run nothing of the project's or of what it depends on.
WITHOUT_CODE = {
    "actions/download-artifact",
    "actions/attest-build-provenance",
    "pypa/gh-action-pypi-publish",
}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow):
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_it_has_the_form_of_a_workflow(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += ["vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_ends_and_what_may_write_runs_no_code_of_the_project(path):
    """Neither the project's code nor that of its dependencies meets a token of more than reading."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        if "permissions" in job:
            actions = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
            assert actions <= WITHOUT_CODE, name
            runs = [step["run"] for step in job["steps"] if "run" in step]
            assert all(run.startswith(("gh release create ", "sha256sum ")) for run in runs), name


def test_who_may_write():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {name: job["permissions"] for name, job in jobs.items() if "permissions" in job} == {
        "draft": {"contents": "write", "id-token": "write", "attestations": "write"},
        "index": {"id-token": "write"},
    }
    assert jobs["index"]["environment"] == "pypi"
    assert "secrets." not in str(jobs)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_leave_no_token_in_the_checkout(path):
    """A tag of an action can be moved. The comment has the version, for reviewers and updates."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r" +- uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    for job in read(path)["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_builds_a_release_has_exact_versions_and_hashes():
    """Those of pyproject.toml: release and docs, and what the package itself needs."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    text = (ROOT / "release" / "requirements.txt").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([\w-]+)==([\w.]+)[^\n]*\n((?: +--hash=sha256:.*\n)+)", text, re.MULTILINE
    )
    assert len(entries) == len(re.findall(r"^[\w-]", text, re.MULTILINE))
    locked = {name: Version(version) for name, version, _ in entries}
    for wanted in (*project["dependencies"], *extras["release"], *extras["docs"]):
        requirement = Requirement(wanted)
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes --only-binary :all:" in makefile


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
            named = {argument for argument in arguments if "=" not in argument}
            assert named <= set(targets), command
        else:
            assert (ROOT / program).is_file(), command


def test_a_release_is_a_draft_of_files_that_are_built_where_no_test_has_run():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    by_job = {name: commands({"jobs": {name: job}}) for name, job in jobs.items()}
    assert [run for run in by_job["files"] if not run.startswith("sudo")] == [".ci/files"]
    assert [job.get("needs") for job in jobs.values()] == [None, "tests", "files", "draft"]
    assert "make test" in by_job["tests"]
    check, draft = by_job["draft"]
    assert check == "sha256sum --check --strict SHA256SUMS"
    assert "--draft" in draft


def test_what_is_attested_and_uploaded_is_what_the_build_has_stored():
    """By name: code in the job of the tests could store more files, also ones of an equal name."""
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]

    def named(job, action):
        steps = [step for step in jobs[job]["steps"] if step.get("uses", "").startswith(action)]
        return [step["with"].get("name") for step in steps]

    stored = named("files", "actions/upload-artifact@")
    assert named("draft", "actions/download-artifact@") == stored
    assert named("index", "actions/download-artifact@") == stored[:1]
    assert [job for job in jobs if named(job, "actions/upload-artifact@")] == ["files"]
