"""Words that make no sense: exit 2 (or 1 where the words are right), one message, no traceback."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.__main__ import main, parser
from spillway.commands.parsing import Parser

INCLUDE = Path(__file__).resolve().parents[2] / "include"
COMMANDS = (
    "preflight",
    "explain",
    "sync",
    "images",
    "checkpoints",
    "cache",
    "costs",
    "history",
    "runs",
    "shadow",
    "scale",
    "transfers",
    "sample",
    "demand",
    "ledger",
)


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    """Connections with nothing but a ledger that nobody has created yet."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    file = tmp_path / "ledger.json"
    file.write_text(json.dumps({"spillway_ledger": {"conn_type": "sqlite", "extra": json.dumps({"url": url})}}))
    return file


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param((), "the following arguments are required: COMMAND", id="no-command"),
        pytest.param(("explian",), f"known: {', '.join(sorted(COMMANDS))}. Did you mean 'explain'?", id="near-command"),
        pytest.param(("runs", "strat"), "unknown command 'strat'", id="near-command-of-a-subject"),
        pytest.param(("runs",), "the following arguments are required: COMMAND", id="subject-alone"),
        pytest.param(("explain",), "one of the arguments JOB --run is required", id="explain-nothing"),
        pytest.param(("explain", "digits", "--run", "r"), "not allowed with argument", id="explain-two-things"),
        pytest.param(("explain", "digits", "--attempt", "1"), "--attempt needs --run", id="attempt-without-run"),
        pytest.param(("explain", "--run", "r", "--attempt", "0"), "a whole number from 1, got '0'", id="attempt-zero"),
        pytest.param(("sync", "digits"), "the following arguments are required: SITE", id="sync-without-site"),
        pytest.param(("sync", "d", "s", "--delete-up-to", "0"), "percent from 1 to 100, got '0'", id="delete-nothing"),
        pytest.param(("sync", "d", "s", "--delete-up-to", "1e1"), "percent from 1 to 100, got '1e1'", id="no-percent"),
        pytest.param(("sync", "d", "s", "--delete", "--delete-up-to", "9"), "not allowed with", id="two-guards"),
        pytest.param(("images", "sync", "--delete-up-to", "101"), "percent from 1 to 100, got '101'", id="above-all"),
        pytest.param(("runs", "start", "j", "--poll-seconds", "-1"), "seconds above 0, got '-1'", id="negative-pause"),
        pytest.param(("runs", "list", "--limit", "many"), "a whole number from 1, got 'many'", id="limit-in-words"),
        pytest.param(("cache", "purge", "s", "d", "--withdrawn"), "not allowed with argument", id="purge-two-things"),
        pytest.param(("runs", "list", "--jsn"), "runs list: error: unrecognized arguments: --jsn", id="unknown-option"),
        pytest.param(("transfers", "--outcome", "refusd"), "unchanged. Did you mean 'refused'?", id="near-outcome"),
        pytest.param(("history", "import", "f"), "arguments are required: --source", id="history-of-nobody"),
        pytest.param(("history", "import", "f", "--source", "a/b"), "without a slash, got 'a/b'", id="source-slash"),
        pytest.param(("history", "import", "f", "--source", "a", "--zone", "CST9"), "got 'CST9'", id="no-such-zone"),
        pytest.param(("history", "import", "f", "--source", "a", "--epoch", "soon"), "got 'soon'", id="no-such-day"),
        pytest.param(("shadow", "p.yaml", "--since", "1"), "a duration such as '30s', '10m', '2h'", id="no-unit"),
        pytest.param(("shadow", "p.yaml", "--since", "-7d"), "'10m', '2h' or 'PT30S', got '-7d'", id="negative-time"),
        pytest.param(("shadow", "thrifty"), "one with `scaling: {preset: thrifty}`, got 'thrifty'", id="no-file"),
        pytest.param(("history", "make-up", "f", "--seed", "-1"), "whole number from 0, got '-1'", id="negative-seed"),
        pytest.param(("history", "make-up", "f", "--days", "3651"), "from 1 to 3650, got '3651'", id="many-days"),
        pytest.param(("history", "make-up", "f", "--from", "9999-12-30"), "years 1900 to 2999, got", id="last-day"),
        pytest.param(("scale", "add", "a/b", "1", "--hours", "8761"), "from 1 to 8760, got '8761'", id="many-hours"),
        pytest.param(
            ("runs", "start", "j", "--poll-seconds", "1e9"), "and up to 315360000, got '1e9'", id="long-pause"
        ),
        pytest.param(("runs", "show", "r", "s"), "usage: python -m spillway runs show [-h]", id="too-many-words"),
    ],
)
def test_words_that_make_no_sense_exit_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def numbers(words: Parser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], argparse.Action]]:
    """Every option and argument with a type of its own, below the words of its command."""
    for action in words._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from numbers(below, (*path, name))
        elif action.type is not None and not isinstance(action.type, type):
            yield path, action


OPTIONS = [found for command in COMMANDS for found in numbers(parser((command,)))]


@pytest.mark.parametrize(("path", "action"), OPTIONS, ids=lambda part: getattr(part, "dest", None) or " ".join(part))
def test_no_number_of_a_command_is_too_large_to_be_told(path: tuple[str, ...], action: argparse.Action) -> None:
    """What no database and no clock takes, and Python does not even read, is refused by every one of them."""
    assert callable(action.type)
    for written in ("9" * 20, "9" * 5000, "-" + "9" * 20):
        with pytest.raises(argparse.ArgumentTypeError, match="expected "):
            action.type(written)


ANSWERED_AS_JSON = [
    "preflight",
    "explain digits",
    "sync digits cloud",
    "images sync",
    "checkpoints ls r",
    "checkpoints verify r",
    "checkpoints restore r folder",
    "checkpoints prune r",
    "cache ls",
    "cache purge digits cloud",
    "costs report",
    "costs budgets",
    "runs list",
    "runs show r",
    "runs migrate r cloud",
    "shadow p.yaml",
    "scale plan",
    "scale apply",
    "scale add cloud/gpu 1",
    "scale shrink cloud/gpu 1",
    "scale withdraw o",
    "scale orders",
    "scale changes",
    "transfers",
]


@pytest.mark.parametrize("words", ANSWERED_AS_JSON)
def test_a_program_is_told_as_json_why_it_gets_no_answer(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--config-dir", "nowhere", "--connections", "nowhere.json")
    assert main((*words.split(), *place, "--json")) == 1
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert shown.err == f"spillway: {error['message']}\n"
    assert {**error, "message": ""} == {"kind": "ConfigError", "message": "", "fix": None, "retry_helps": False}

    with pytest.raises(SystemExit) as ended:
        main((*words.split(), "--nonsense", "--json"))
    assert ended.value.code == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["kind"], error["message"]) == ("WordsRefused", "unrecognized arguments: --nonsense")
    assert shown.err.endswith(f"error: {error['message']}\n")


@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS)], ids=lambda words: "-".join(words))
def test_each_command_has_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main((*words, "--help"))
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: python -m spillway")


@pytest.mark.parametrize(
    ("config_dir", "connections", "message"),
    [
        pytest.param(
            "none", "empty.json", "no such directory; SPILLWAY_CONFIG_DIR names the one", id="no-configuration"
        ),
        pytest.param(
            None,
            None,
            "or as --connections FILE; the sandbox's is build/sandbox/connections.json",
            id="connections-not-named",
        ),
        pytest.param(
            None, "absent.json", "absent.json: no such file; SPILLWAY_CONNECTIONS or", id="no-connections-file"
        ),
        pytest.param(None, "broken.json", "broken.json: line 1: not valid JSON", id="broken-connections-file"),
        pytest.param(None, "empty.json", "Connection 'spillway_ledger' is not in", id="no-ledger-connection"),
        pytest.param(None, "ledger.json", "run `python -m spillway ledger upgrade`", id="ledger-not-created"),
    ],
)
def test_an_installation_that_is_not_there_is_one_message(
    config_dir: str | None,
    connections: str | None,
    message: str,
    tmp_path: Path,
    ledger_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable in ("SPILLWAY_CONFIG_DIR", "SPILLWAY_CONNECTIONS", "SPILLWAY_JOBS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty.json").write_text("{}")
    assert ledger_file.exists()
    options = ["--config-dir", str(tmp_path / config_dir)] if config_dir else []
    options += ["--connections", str(tmp_path / connections)] if connections else []
    assert main(("runs", "list", *options)) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("spillway: ") and message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(("written", "told"), [(None, "no such file"), ("{", "line 1: not valid JSON")])
def test_connections_that_cannot_be_read_are_one_message_of_preflight_and_no_gaps(
    written: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "connections.json"
    if written is not None:
        file.write_text(written)
    assert main(("preflight", "--connections", str(file))) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert f"connections.json: {told}" in shown.err


def test_a_ledger_is_created_once_and_a_dry_run_creates_none(
    ledger_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--connections", str(ledger_file))
    assert main(("ledger", "upgrade", "--dry-run", *place)) == 0
    assert "would upgrade" in capsys.readouterr().out
    assert main(("runs", "list", *place)) == 1
    for _ in range(2):
        assert main(("ledger", "upgrade", *place)) == 0
    assert main(("ledger", "upgrade", "--dry-run", *place)) == 0
    assert capsys.readouterr().out.endswith("nothing to do\n")
    assert main(("runs", "list", *place)) == 0


def test_a_reader_that_has_seen_enough_is_no_fault(ledger_file: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "spillway", "ledger", "upgrade", "--connections", str(ledger_file)],
        env={"PYTHONPATH": str(INCLUDE)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_word_that_is_no_text_is_told_as_such(ledger_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("transfers", "--dataset", os.fsdecode(b"d\xff"), "--connections", str(ledger_file)))
    assert ended.value.code == 2
    assert "expected UTF-8 text, got 'd\\udcff'" in capsys.readouterr().err


def test_a_python_without_the_packages_is_one_message(ledger_file: Path) -> None:
    argv = [sys.executable, "-S", "-m", "spillway", "transfers", "--json"]  # -S: as outside of the virtual environment
    environment = {"PYTHONPATH": str(INCLUDE), "SPILLWAY_CONNECTIONS": str(ledger_file)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    told = f"is not installed for {sys.executable}; take the python of the virtual environment"
    assert done.returncode == 1
    assert done.stderr.startswith("spillway: the package '") and told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["error"]["kind"] == "ModuleNotFoundError"
