"""No credential is shown by the text of a value, which ends up in logs and error messages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted([*(ROOT / "include").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")])

TELLING = ("token", "password", "secret", "credential", "kubeconfig", "environment")
"""Parts of the names of fields that hold a credential, or a document with one in it."""
CARRIERS = ("str", "bytes", "dict", "Mapping", "Any")
"""What the type of such a field has in it; a path or an object shows no more than its name."""
REVIEWED = frozenset(
    {"JobSpec.environment", "PodAccess.store_secret", "PodAccess.cache_secret", "PodAccess.pull_secret", "Page.token"}
)
"""Declared in files that people read, where no secret belongs; what Secrets are called; where a listing goes on."""


def dataclasses_of(file: Path) -> Iterator[ast.ClassDef]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            yield node


def shown_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Name and type of each field that the class's ``repr`` shows."""
    for item in node.body:
        hidden = isinstance(item, ast.AnnAssign) and item.value is not None and "repr=False" in ast.unparse(item.value)
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not hidden:
            yield item.target.id, ast.unparse(item.annotation)


def test_no_dataclass_shows_a_credential() -> None:
    classes = [(file, node) for file in FILES for node in dataclasses_of(file)]
    assert {"ConnectionSpec", "Access", "JobSpec"} <= {node.name for _, node in classes}
    assert not [
        f"{file.relative_to(ROOT)}: {node.name}.{name}: {kind}"
        for file, node in classes
        for name, kind in shown_fields(node)
        if any(part in name.lower() for part in TELLING) and any(carrier in kind for carrier in CARRIERS)
        if f"{node.name}.{name}" not in REVIEWED
    ]
