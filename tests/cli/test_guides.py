"""The guides: their commands exist, their links lead somewhere, the report's fields are all described."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import yaml

from spillway.__main__ import parser
from spillway.config import load_job
from spillway.config.clusters import ClustersFile
from spillway.config.job import JobFile
from spillway.config.load import NOT_SAID
from spillway.config.scaling import ScalingEntry
from spillway.model import CostEntry, Dataset, PlacementDecision, PlacementVerdict, Rejection, Tier
from spillway.sandbox.__main__ import main as sandbox_main
from spillway.scaling.presets import PRESETS
from spillway.windows import Iteration

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMAND = re.compile(r"python -m (spillway(?:\.sandbox)?) ([^`\n#]*)")


def commands(module: str) -> list[tuple[str, ...]]:
    """The words of every command of the module that a guide names, each once."""
    found = (match for guide in GUIDES for match in COMMAND.finditer(guide.read_text()))
    lines = {match[2].strip().rstrip(".,;:)") for match in found if match[1] == module}
    return [tuple(shlex.split(line)) for line in sorted(lines - {""})]


@pytest.mark.parametrize("words", commands("spillway"), ids=" ".join)
def test_a_command_of_a_guide_exists(words: tuple[str, ...]) -> None:
    if words[-1] in {"checkpoints", "runs", "ledger", "images"}:
        words = (*words, "--help")
    options = ("--help",) if "--help" in words else ()
    if options:
        with pytest.raises(SystemExit) as ended:
            parser(words).parse_args(words)
        assert ended.value.code == 0
    else:
        assert callable(parser(words).parse_args(words).command)


@pytest.mark.parametrize("words", commands("spillway.sandbox"), ids=" ".join)
def test_a_command_of_the_sandbox_in_a_guide_exists(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        sandbox_main((*(words[:1] if words[0] == "airflow" else words), "--help"))  # what follows is Airflow's to know
    assert ended.value.code == 0


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(ROOT)))
def test_the_links_of_a_guide_lead_somewhere(guide: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", guide.read_text())
    assert [link for link in links if "://" not in link and not (guide.parent / link).exists()] == []


def test_every_decision_record_ends_with_what_would_violate_it() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [record.name[:4] for record in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    last = [record.read_text().strip().split("\n\n")[-1] for record in records]
    assert all(text.startswith("A change violates this decision when ") for text in last)


@pytest.mark.parametrize("kind", [CostEntry, PlacementDecision, PlacementVerdict, Rejection])
def test_every_field_of_a_value_in_the_report_is_described(kind: type) -> None:
    told = (ROOT / "docs" / "evidence.md").read_text()
    known = {"candidate", "taken_at", "job", "unreachable"}  # told in words, or of the record around it
    fields = {field.name for field in dataclasses.fields(kind)} - known
    assert {name for name in fields if f"`{name}`" not in told} == set()


def test_every_test_that_a_known_fault_is_held_by_exists() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "known-faults.md").read_text())
    there = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert len(named) > 30
    assert set(named) <= there


def test_every_key_of_a_job_file_is_described() -> None:
    told = (ROOT / "docs" / "jobs.md").read_text()
    assert {key for key in JobFile.model_fields if f"`{key}`" not in told} == set()


def test_the_numbers_of_every_preset_are_in_the_guide() -> None:
    told = (ROOT / "docs" / "elasticity.md").read_text()
    table = told[told.index("| preset | `idle_release` |") :].split("\n\n")[0]
    columns, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    keys = [key.strip("`") for key in columns[1:]]
    having = {**PRESETS, "no block": NOT_SAID}
    assert {row[0].strip("`") for row in rows} == set(having)
    for name, *cells in rows:
        said = {key: yaml.safe_load(cell.strip("`")) for key, cell in zip(keys, cells, strict=True)}
        written, rules = ScalingEntry(preset="s0", **said).rules(Iteration()), having[name.strip("`")]
        assert [getattr(written, key) for key in keys] == [getattr(rules, key) for key in keys], name


def test_the_examples_in_the_guides_are_valid(tmp_path: Path) -> None:
    def first_yaml(guide: str) -> str:
        found = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / guide).read_text(), re.DOTALL)
        assert found is not None
        return found[1]

    (tmp_path / "job.yaml").write_text(first_yaml("jobs.md"))
    digits = Dataset(name="digits", home="onprem", prefix="digits/", tier=Tier.PUBLIC)
    assert load_job(tmp_path / "job.yaml", {"digits": digits}).name == "digits"
    (cluster,) = ClustersFile.model_validate(yaml.safe_load(first_yaml("clusters.md"))).clusters
    assert cluster.name == "onprem"
