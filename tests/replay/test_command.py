"""``python -m spillway.replay``: a comparison that is printed and written, or one message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from spillway.replay.__main__ import main
from spillway.replay.comparing import LONGEST_SAID, clusters_of, comparison, estimated, policy_of
from spillway.replay.trace import read_trace

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "include" / "config" / "clusters.yaml"
POLICY = ROOT / "include" / "config" / "policy.yaml"
CORES = {
    "name": "cores", "gpus_per_node": 0, "max_nodes": 2, "cpu_cores_per_node": 8, "memory_gib_per_node": 32,
    "prices_per_core_hour": {"owned": 0.1}, "node_selector": {"pool": "cores"},
}  # fmt: skip
TRACE = "job_id,submit_s,gpus,duration_s,vc\n" + "".join(f"{i},{i * 600},8,{3600 + i},a\n" for i in range(30))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    file.write_text(TRACE)
    return file


def test_a_comparison_is_printed_and_written_and_is_the_same_again(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(trace), "--clusters", str(CLUSTERS), "--local-gpus", "8", "--policy", "default", "s0"]
    written = []
    for name in ("a", "b"):
        assert main([*words, "--json", str(tmp_path / f"{name}.json"), "--html", str(tmp_path / "page.html")]) == 0
        written.append(json.loads((tmp_path / f"{name}.json").read_text()))
    assert written[0] == written[1]
    assert [policy["policy"] for policy in written[0]["policies"]] == ["default", "s0"]
    assert all(policy["jobs"] == 30 and policy["unfinished"] == 0 for policy in written[0]["policies"])
    assert written[0]["bounds"]["fluid"]["cloud_gpu_hours"] > 0
    assert "<table>" in (tmp_path / "page.html").read_text()
    said = capsys.readouterr().out
    assert "least without waits and moves" in said
    assert "without quotas and rights to clouds: default, s0" in said
    assert "no run is interrupted" in said


def test_how_many_jobs_have_ended_is_shown_of_each_policy(trace: Path) -> None:
    shown: list[tuple[str, str]] = []

    @contextmanager
    def following(text: str) -> Iterator[Callable[[str], None]]:
        yield lambda state: shown.append((text, state))

    (job, *_) = read_trace(trace).jobs
    jobs = [replace(job, job=str(number), gpus=1) for number in range(2500)]
    clusters = clusters_of(CLUSTERS)
    policies = [policy_of(name, quotas=False) for name in ("default", "thrifty")]
    comparison("made up", jobs, clusters, policies, placement=False, following=following)
    assert shown == [
        (f"replaying {name} ({number} of 2)", f"{ended} of 2,500 jobs")
        for number, name in enumerate(("default", "thrifty"), start=1)
        for ended in ("1,000", "2,000")
    ]


def test_a_policy_file_is_named_by_its_name(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text((ROOT / "include" / "config" / "policy.yaml").read_text())
    assert main([str(trace), "--clusters", str(CLUSTERS), "--policy", str(policy), "--without-bound"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("mine ")


def test_conditions_of_a_file_hold_and_their_figures_are_printed_and_written(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, figures = tmp_path / "conditions.yaml", tmp_path / "figures.json"
    file.write_text(
        "spot: {cloud/h100: {up: {mean: 2h, median: 2h}, down: {mean: 1h, median: 1h}}}\nspot_ok: [research]\n"
    )
    words = [str(trace), "--clusters", str(CLUSTERS), "--local-gpus", "8", "--policy", "default", "--without-bound"]
    assert main([*words, "--conditions", str(file), "--json", str(figures)]) == 0
    (policy,) = json.loads(figures.read_text())["policies"]
    assert policy["interruptions"] > 0
    assert policy["lost_gpu_hours"] > 0
    said = capsys.readouterr().out
    assert "INTERRUPTED" in said
    assert "no run is interrupted" not in said
    assert main([*words, "--conditions", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml: no such file in " in capsys.readouterr().err


def test_quotas_of_a_policy_file_count_where_they_are_asked_for(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = ROOT / "include" / "config" / "policy.yaml"
    words = [str(trace), "--clusters", str(CLUSTERS), "--policy", str(policy), "default", "--without-bound", "--quotas"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "policy: 30 jobs of departments without a quota, taken as of 'production'" in said
    assert "without quotas and rights to clouds: default\n" in said


def test_policies_of_one_file_name_are_told_apart_and_how_far_each_is(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    files = [str(tmp_path / "mine.yaml"), str(tmp_path / "other" / "mine.yaml")]
    for file in files:
        Path(file).write_text((ROOT / "include" / "config" / "policy.yaml").read_text())
    words = [str(trace), "--clusters", str(CLUSTERS), "--without-bound", "--policy", *files, "s0", "s0"]
    assert main(words) == 0
    said = capsys.readouterr().out.splitlines()
    header = next(number for number, line in enumerate(said) if line.startswith("POLICY"))
    assert [line.split()[0] for line in said[header + 1 : header + 4]] == [*files, "s0"]
    for line in said[:header]:
        assert line.startswith((*(f"replaying {name} (" for name in (*files, "s0")), "working out the bounds"))


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        pytest.param(
            {}, ["--policy", "thrify"], "unknown preset or policy file 'thrify'", id="neither file nor preset"
        ),
        pytest.param({"policy": "version: 9\n"}, ["--policy", "p.yaml"], "version 9", id="policy of another version"),
        pytest.param({"trace": "job_id,submit_s\n1,2\n"}, [], "columns", id="a trace without the columns"),
        pytest.param({"trace": TRACE + "31,5,8,nan,a\n"}, [], "line 32", id="a row at fault"),
        pytest.param({"trace": TRACE + "31,250000000000,8,60,a\n"}, [], "days apart", id="a moment that is none"),
        pytest.param({}, ["--local-gpus", "12"], "12 are no whole nodes", id="no whole nodes"),
        pytest.param({"clusters": "cpu"}, [], "has no GPUs, so no job runs there", id="a cluster without capacity"),
        pytest.param({}, ["--measure", "1", "2"], "no job was submitted from day 1 to day 2", id="nothing to measure"),
        pytest.param({}, ["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json cannot be written", id="no place"),
        pytest.param({"trace": ""}, ["--html", "/nowhere/x.html"], "/nowhere/x.html cannot be", id="told before all"),
        pytest.param(
            {"policy": POLICY.read_text() + "scaling: {window: {pool: cloud/h10}}\n"},
            ["--policy", "p.yaml"],
            "policy p: scaling.window.pool: unknown pool 'cloud/h10'; known: cloud/h100. Did you mean 'cloud/h100'?",
            id="nodes of no pool",
        ),
    ],
)
def test_what_cannot_be_replayed_is_one_message(
    change: dict[str, str],
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    clusters = CLUSTERS.read_text()
    if "clusters" in change:
        written = yaml.safe_load(clusters)
        written["clusters"][0]["pools"] = [CORES]
        clusters = yaml.safe_dump(written)
    Path("clusters.yaml").write_text(clusters)
    Path("jobs.csv").write_text(change.get("trace", TRACE))
    Path("p.yaml").write_text(change.get("policy", ""))
    assert main(["jobs.csv", "--clusters", "clusters.yaml", "--without-bound", *words]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--htlm", "x.html"], "unrecognized arguments: --htlm x.html"),
        (["--policy", "s0", "--quota", "s2"], "unrecognized arguments: s2"),
        (["--local-gpus", "9" * 20], f"expected a whole number from 1 to 100000, got '{'9' * 20}'"),
        (["--seed", "-1"], "expected a whole number from 0, got '-1'"),
    ],
)
def test_words_that_make_no_sense_exit_2(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["none.csv", "--clusters", "none.yaml", *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_another_size_of_the_first_pool_leaves_the_others_of_its_cluster_as_they_are(tmp_path: Path) -> None:
    written = yaml.safe_load(CLUSTERS.read_text())
    (first,) = written["clusters"][0]["pools"]
    written["clusters"][0]["pools"] = [CORES, first, first | {"name": "second", "node_selector": {"second": "true"}}]
    file = tmp_path / "clusters.yaml"
    file.write_text(yaml.safe_dump(written))
    before, after = clusters_of(file)[0].pools, clusters_of(file, 8)[0].pools
    assert after == (before[0], replace(before[1], max_nodes=1), before[2])


@pytest.mark.parametrize("days", [("0", "inf"), ("nan", "2"), ("2", "1"), ("-1", "1"), ("0", "1e9")])
def test_days_that_are_none_are_refused(days: tuple[str, str], trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(trace), "--clusters", str(CLUSTERS), "--measure", *days])
    assert "--measure: expected two days" in capsys.readouterr().err


def test_estimates_have_an_error_of_the_seed_and_those_that_are_told_stay(trace: Path) -> None:
    jobs = read_trace(trace).jobs
    assert [job.duration_estimate for job in estimated(jobs, 0.0, 1)] == [job.duration for job in jobs]
    wrong = estimated(jobs, 1.0, 1)
    assert wrong == estimated(jobs, 1.0, 1) != estimated(jobs, 1.0, 2)
    assert estimated(wrong, 1.0, 3) == wrong


def test_an_estimate_is_no_longer_than_anybody_would_say(trace: Path) -> None:
    job = replace(read_trace(trace).jobs[0], held_for=timedelta(days=60))
    jobs = [replace(job, job=str(number)) for number in range(20_000)]
    said = [job.duration_estimate for job in estimated(jobs, 5.0, 1)]
    assert max(filter(None, said)) == LONGEST_SAID
