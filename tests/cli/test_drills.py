"""``python -m spillway.sandbox drill``, and what the other commands make of what a drill took."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spillway.errors import Unreachable
from spillway.sandbox import drills, lifecycle
from spillway.sandbox.__main__ import main
from spillway.sandbox.settings import SandboxSettings, sandbox_settings
from spillway.sandbox.supervisor import held_processes, hold, read_status
from spillway.testing.command_line import Answer
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

Command = Callable[..., Answer]
WAY_BACK = "give back what drills took: python -m spillway.sandbox drill recover"
CLOUD = "cloud-1, cloud-2, cloud-kube-api, cloud-machines, cloud-registry, cloud-store"


@pytest.fixture
def whole(installation: Installation) -> Iterator[SandboxSettings]:
    """The whole sandbox; what a test takes from it is given back afterwards."""
    yield installation.sandbox
    drills.recover(installation.sandbox)
    eventually(lambda: set(states(installation.sandbox).values()) == {"ready"})


@pytest.fixture
def command(whole: SandboxSettings, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command on the sandbox in this process."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = main(("--state", str(whole.state), *words))
        shown = capsys.readouterr()
        return Answer(code=code, out=shown.out, err=shown.err)

    return run


def states(settings: SandboxSettings) -> dict[str, object]:
    return {name: entry["state"] for name, entry in (read_status(settings.state) or {}).items()}


@pytest.mark.parametrize(
    ("drill", "taken"),
    [
        pytest.param(("node-loss", "cloud-2"), "cloud-2", id="a-node"),
        pytest.param(("site-outage", "cloud"), CLOUD, id="a-site"),
    ],
)
def test_up_leaves_away_what_a_drill_took_and_says_so(
    command: Command, whole: SandboxSettings, drill: tuple[str, str], taken: str
) -> None:
    assert command("drill", *drill).code == 0
    answer = command("up", "--without-airflow")
    assert (answer.code, answer.err) == (0, "")
    assert f"not started, for drills took it: {taken}; {WAY_BACK}" in answer.out.splitlines()
    held = {name.removesuffix("-agent") for name, state in states(whole).items() if state == "held"}
    assert held == set(taken.split(", "))

    assert command("drill", "recover").out == "recover: done\n"
    answer = command("up", "--without-airflow")
    assert "not started" not in answer.out
    assert set(states(whole).values()) == {"ready"}


def test_down_ends_drills_so_that_the_next_up_starts_everything(whole: SandboxSettings) -> None:
    stopped = sandbox_settings(whole.state / "stopped", whole.base_port)
    stopped.state.mkdir()
    hold(stopped.state, ["cloud-2-agent"])
    lifecycle.down(stopped, lambda text: None)
    assert held_processes(stopped.state) == frozenset()


def test_a_demo_is_not_begun_where_a_drill_took_something(command: Command) -> None:
    assert command("drill", "node-loss", "onprem-2").code == 0
    answer = command("demo", "--without-airflow")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"spillway: the demo needs the whole sandbox, but drills took onprem-2; {WAY_BACK}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("evict", "cloud-1", "--pod", "gone-1"), "unknown pod on node cloud-1 'gone-1'; known: none"),
        pytest.param(("evict", "cloud-1"), "name a pod of node cloud-1 with --pod: it has none"),
        pytest.param(("node-loss",), "name a node: cloud-1, cloud-2, onprem-1, onprem-2"),
        pytest.param(
            ("spot-reclaim", "cloud-9"), "unknown node 'cloud-9'; known: cloud-1, cloud-2, onprem-1, onprem-2"
        ),
        pytest.param(("site-outage",), "name a site: cloud, onprem"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else "",
)
def test_a_drill_on_what_is_not_there_names_what_is(command: Command, words: tuple[str, ...], message: str) -> None:
    answer = command("drill", *words)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"spillway: {message}")


@pytest.mark.parametrize("words", [("evict", "cloud-1", "--pod", "run-1"), ("spot-reclaim", "cloud-1")], ids=" ".join)
def test_a_drill_that_needs_an_api_which_is_down_takes_nothing_and_says_so(
    command: Command, installation: Installation, words: tuple[str, ...]
) -> None:
    with installation.taken("cloud-kube-api"):
        answer = command("drill", *words)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("spillway: the Kubernetes API of site 'cloud' is unreachable: GET /api/v1/n")
    assert len(answer.err.splitlines()) == 1
    assert states(installation.sandbox)["cloud-1-agent"] == "ready"


@pytest.mark.parametrize("words", [("evict", "cloud-1", "--pod", "run-1"), ("spot-reclaim", "cloud-1")], ids=" ".join)
def test_a_drill_on_a_node_that_another_one_took_says_so(command: Command, words: tuple[str, ...]) -> None:
    assert command("drill", "node-loss", "cloud-1").code == 0
    answer = command("drill", *words)
    assert (answer.code, answer.err) == (1, f"spillway: a drill took the node 'cloud-1' before; {WAY_BACK}\n")


def test_a_node_object_that_could_not_be_deleted_is_told(
    whole: SandboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = drills._take
    # The API goes away in the same moment as the machine.
    monkeypatch.setattr(drills, "_take", lambda settings, node: take(settings, node, "cloud-kube-api"))
    with pytest.raises(Unreachable, match="site 'cloud' is unreachable: DELETE /api/v1/nodes/cloud-1"):
        drills.spot_reclaim(whole, "cloud-1", notice_seconds=0)
