"""The workflow agrees with `ci/targets.json`, and keeps what is not trusted from self-hosted runners."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
DEVICES = {
    "nvidia": {"sm80", "sm86", "sm89", "sm90", "sm100", "sm120"},
    "amd": {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"},
    "ascend": {"910b", "910_93"},
}
HEAD = "github.event.pull_request.head.repo.full_name"
NOT_A_FORK = f"(github.event_name != 'pull_request' || {HEAD} == github.repository)"
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40}")
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def load_plan():
    spec = importlib.util.spec_from_file_location("plan", ROOT / "ci" / "plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plan = load_plan()
LANES = {lane["lane"]: lane for lane in plan.lanes()}


def workflow(name):
    """YAML 1.1 reads the key `on` as True."""
    found = yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in found.items()}


def jobs():
    for name in WORKFLOWS:
        for job, content in workflow(name)["jobs"].items():
            yield f"{name}/{job}", content


def steps():
    for job, content in jobs():
        for step in content.get("steps", ()):
            yield job, step


def test_there_is_a_lane_for_every_target_and_the_package_knows_each():
    for family, archs in DEVICES.items():
        of_family = [lane["target"] for lane in LANES.values() if lane["family"] == family]
        assert sorted(of_family) == sorted(f"{family}:{arch}" for arch in archs)
    assert {lane["lane"] for lane in LANES.values() if lane["family"] == "cpu"} == {"cpu", "compile"}
    for lane in LANES.values():
        assert isinstance(facts(Target.parse(lane["target"])), TargetFacts)


def test_the_compile_lane_names_what_is_compiled():
    pytest.importorskip("triton")
    from rlt_hw.backends.kernels.compile_check import TARGETS
    from tests.backends.kernels.test_compile import PREFILL

    assert LANES["compile"]["compiles"] == list(TARGETS) == list(PREFILL)


def test_a_lane_of_a_device_is_one_set_of_labels_and_a_pinned_image():
    labels = [tuple(lane["runner"]) for lane in LANES.values() if lane["family"] != "cpu"]
    assert len(set(labels)) == len(labels)
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for lane in (lane for lane in LANES.values() if lane["family"] != "cpu"):
        assert lane["runner"][0] == "self-hosted"
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", lane["image"])
        assert all((ROOT / path).exists() for path in lane["select"].split())
        assert all(re.search(rf"^{extra} = ", extras, re.MULTILINE) for extra in lane["extras"].split(","))


def test_ci_runs_what_the_lanes_of_the_cpu_run():
    goals = [goal for name in ("cpu", "compile") for goal in LANES[name]["make"]]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)$", script, re.MULTILINE) == goals


def test_there_is_one_job_a_family():
    found = workflow("hardware")["jobs"]
    assert set(found) == {"plan", "cpu", *DEVICES, "summary"}
    for family in ("cpu", *DEVICES):
        assert (
            found[family]["strategy"]["matrix"]["include"]
            == f"${{{{ fromJSON(needs.plan.outputs.{family}) }}}}"
        )
        assert found["plan"]["outputs"][family] == f"${{{{ steps.plan.outputs.{family} }}}}"
    assert all([found["cpu"]["runs-on"]] == LANES[name]["runner"] for name in ("cpu", "compile"))
    assert set(found["summary"]["needs"]) == {"plan", "cpu", *DEVICES}
    assert found["summary"]["if"].startswith("always()")


def test_a_pull_request_from_a_fork_reaches_no_self_hosted_runner():
    for name in WORKFLOWS:
        assert set(workflow(name)["on"]) <= {"push", "pull_request", "workflow_dispatch", "workflow_call"}
    for job, content in jobs():
        if job == "lane/device":
            continue
        if "uses" in content:
            assert content["uses"] == "./.github/workflows/lane.yml"
            assert " ".join(content["if"].split()).endswith(f"&& {NOT_A_FORK}"), job
            assert "secrets" not in content
        else:
            assert re.fullmatch(r"ubuntu-\d\d\.\d\d", content["runs-on"]), job
    assert set(workflow("lane")["on"]) == {"workflow_call"}
    offered = plan.matrices(frozenset(lane["target"] for lane in LANES.values()), fork=True)
    assert {family for family, rows in offered.items() if rows} == {"cpu"}


def test_nothing_is_unpinned_and_no_expression_stands_in_a_script():
    for job, step in steps():
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), (job, step["uses"])
        else:
            assert not EXPRESSION.search(step["run"]), (job, step["run"])
    for name in WORKFLOWS:
        assert workflow(name)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in content or "uses" in content for _, content in jobs())


def test_an_expression_reads_only_what_exists():
    lane_keys = set.intersection(*(set(lane) for lane in LANES.values() if lane["family"] != "cpu"))
    outputs = {"cpu", *DEVICES}
    for path in WORKFLOWS.values():
        for text in EXPRESSION.findall(path.read_text(encoding="utf-8")):
            assert set(re.findall(r"fromJSON\(inputs\.lane\)\.(\w+)", text)) <= lane_keys
            assert set(re.findall(r"outputs\.(\w+)", text)) <= outputs
            assert set(re.findall(r"matrix\.(\w+)", text)) <= set(LANES["cpu"]) & set(LANES["compile"])


def test_evidence_is_uploaded_whatever_happened():
    for job in ("hardware/cpu", "lane/device"):
        last = dict(jobs())[job]["steps"][-1]
        assert last["uses"].startswith("actions/upload-artifact@")
        assert (last["if"], last["with"]["path"]) == ("always()", "evidence")
    (tests,) = (step for job, step in steps() if job == "lane/device" and "pytest" in step.get("run", ""))
    assert '--require-device="$TARGET"' in tests["run"] and "--evidence=evidence" in tests["run"]


def run_plan(*words, **variables):
    command = [sys.executable, str(ROOT / "ci" / "plan.py"), *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_the_matrix_has_the_lanes_with_a_runner():
    done = run_plan("matrix", HARDWARE_TARGETS="nvidia:sm90, amd:gfx942")
    assert done.returncode == 0, done.stderr
    found = {line.partition("=")[0]: json.loads(line.partition("=")[2]) for line in done.stdout.splitlines()}
    assert {family: [row["lane"] for row in rows] for family, rows in found.items()} == {
        "cpu": ["cpu", "compile"],
        "nvidia": ["nvidia-sm90"],
        "amd": ["amd-gfx942"],
        "ascend": [],
    }


def test_a_lane_that_did_not_run_says_so(tmp_path):
    for lane, state in (("cpu", "success"), ("nvidia-sm90", "failure")):
        (tmp_path / lane).mkdir()
        (tmp_path / lane / "outcome").write_text(f"{state}\n")
    done = run_plan("summary", str(tmp_path), HARDWARE_TARGETS="nvidia:sm90")
    rows = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in done.stdout.splitlines()[2:]}
    assert set(rows) == set(LANES)
    assert (rows["cpu"], rows["nvidia-sm90"]) == ("success", "failure")
    assert rows["compile"] == "**failure**: no outcome"
    assert rows["ascend-910b"] == "**not run**: no runner with the labels self-hosted, linux, ascend-910b"
    forked = run_plan("summary", str(tmp_path), HARDWARE_TARGETS="nvidia:sm90", FORK="true")
    assert "| nvidia-sm90 | `nvidia:sm90` | **not run**: pull requests from forks" in forked.stdout


def test_a_runner_without_a_lane_is_refused():
    done = run_plan("matrix", HARDWARE_TARGETS="nvidia:sm70")
    assert done.returncode == 1
    assert "found nvidia:sm70; allowed amd:gfx1100" in done.stderr
