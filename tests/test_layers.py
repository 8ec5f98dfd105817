"""The dependency rule: dags -> plugins -> include; in the library the upper import the lower; decisions are pure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "include" / "spillway"

# The layers from the lowest; the longest name that a module begins with decides.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"", "__version__", "model", "errors", "codec"}),
    frozenset({
        "placement", "quota", "pricing", "losses", "stalls", "handover", "leases", "pulls", "sync.plan", "sync.compare",
        "checkpoints.layout", "checkpoints.retention", "images.environment", "images.plan", "images.reference",
        "migration", "months", "attribution", "lines", "deadlines", "budget", "costs", "offpeak",
        "forecast", "windows", "sampling", "measuring", "demand", "replay.steps", "replay.metrics", "replay.synthetic",
        "replay.assigned", "replay.bounds", "scaling", "backfills",
    }),
    frozenset({"clouds", "stores", "registries", "sync", "images", "checkpoints", "connections", "threads"}),
    frozenset({"observe", "preflight", "ledger", "config"}),
    frozenset({"runs"}),
    frozenset({"__main__", "commands", "sandbox", "replay", "forecast.__main__"}),
)  # fmt: skip
TRAINER_MAY_IMPORT = frozenset({"trainer", "checkpoints", "stores", "model", "errors", "codec", "threads"})

IMPURE_MODULES = frozenset({
    "airflow", "asyncio", "boto3", "botocore", "glob", "http", "io", "kubernetes", "logging", "os", "pathlib", "random",
    "requests", "secrets", "shutil", "signal", "socket", "sqlalchemy", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib.request", "uuid",
})  # fmt: skip
PURE_NAMES = frozenset({"pathlib.PurePosixPath"})
IMPURE_CALLS = frozenset({"open", "print", "input", "now", "utcnow", "today"})


def library_modules() -> dict[str, Path]:
    """Module name below ``spillway`` (empty for the package itself) and its file."""
    modules = {}
    for file in sorted(LIBRARY.rglob("*.py")):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


MODULES = library_modules()


def nodes(file: Path) -> Iterator[ast.AST]:
    """Of the file's syntax tree."""
    return ast.walk(ast.parse(file.read_text(encoding="utf-8")))


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Every name that the file imports, inside functions too: ``a.b`` of ``import a.b`` and of ``from a import b``."""
    found: list[str] = []
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            found += [f"{node.module}.{name.name}" for name in node.names]
    return tuple(found)


def library_imports(file: Path) -> Iterator[str]:
    for name in imported(file):
        if name == "spillway" or name.startswith("spillway."):
            yield name.removeprefix("spillway").removeprefix(".")


def begins(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def outside(module: str) -> bool:
    """Whether the module stands outside the layers."""
    return begins(module, "trainer") or begins(module, "testing")


def layer(module: str) -> int | None:
    """The layer's height; None outside the layers and for a module that nobody gave one."""
    named = [(name, height) for height, names in enumerate(LAYERS) for name in names if begins(module, name)]
    return None if outside(module) or not named else max(named, key=lambda pair: len(pair[0]))[1]


def test_every_module_has_a_layer_and_every_layer_its_modules() -> None:
    assert not [module for module in MODULES if layer(module) is None and not outside(module)]
    assert not {name for names in LAYERS for name in names} - set(MODULES) - {"__version__"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_its_own_layer_and_lower_ones_only(module: str) -> None:
    own = layer(module)
    if own is None:
        return
    higher = {name for name in library_imports(MODULES[module]) if (other := layer(name)) is None or other > own}
    assert not higher


def test_the_trainer_pulls_in_only_what_goes_into_its_image() -> None:
    reached: set[str] = set()
    ahead = [module for module in MODULES if begins(module, "trainer")]
    while ahead:
        module = ahead.pop()
        reached.add(module)
        names = set(library_imports(MODULES[module]))
        ahead += [other for other in MODULES if any(begins(name, other) for name in names) and other not in reached]
    assert not {module for module in reached if module.split(".")[0] not in TRAINER_MAY_IMPORT}


def test_only_the_command_line_and_test_servers_import_the_sandbox() -> None:
    importers = {
        module
        for module, file in MODULES.items()
        if any(begins(name, "sandbox") for name in library_imports(file)) and not begins(module, "sandbox")
    }
    assert {module for module in importers if not begins(module, "testing")} <= {"__main__"}


def test_only_tests_import_the_test_support() -> None:
    files = [file for module, file in MODULES.items() if not begins(module, "testing")]
    files += [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").rglob("*.py")]
    assert not [file for file in files if any(begins(name, "testing") for name in library_imports(file))]


def test_node_pools_are_changed_from_one_place() -> None:
    files = [file for module, file in MODULES.items() if not begins(module, "testing")]
    files += [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").rglob("*.py")]
    asking = [
        file.relative_to(ROOT).as_posix()
        for file in files
        for node in nodes(file)
        if isinstance(node, ast.Attribute) and node.attr == "set_target"
    ]
    assert asking == ["include/spillway/runs/scaling.py"]


@pytest.mark.parametrize("module", [module for module in MODULES if layer(module) in {0, 1}])
def test_a_decision_has_no_clock_file_network_environment_chance_or_log(module: str) -> None:
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in nodes(MODULES[module])
        if isinstance(node, ast.Call)
    }
    names = set(imported(MODULES[module])) - PURE_NAMES
    assert not {name for name in names if any(begins(name, impure) for impure in IMPURE_MODULES)}
    assert not called & IMPURE_CALLS


def test_a_forecast_needs_numpy_and_nothing_else_that_is_installed() -> None:
    names = {
        name.split(".")[0] for module, file in MODULES.items() if begins(module, "forecast") for name in imported(file)
    }
    assert names - sys.stdlib_module_names == {"numpy", "spillway"}


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("include", {"airflow", "spillway_airflow", "dags", "plugins"}),
        ("plugins", {"dags"}),
        ("dags", {"dags", "plugins"}),
    ],
)
def test_the_folders_depend_downwards(folder: str, forbidden: set[str]) -> None:
    found = {
        (str(file.relative_to(ROOT)), name)
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in imported(file)
        if name.split(".")[0] in forbidden
    }
    assert not found
