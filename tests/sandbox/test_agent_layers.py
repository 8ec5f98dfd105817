"""Layers of an image, unpacked and laid over each other."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from spillway.errors import DigestMismatch
from spillway.registries.digest import digest_of
from spillway.sandbox.agent.layers import lay_over, unpack


def _tar(files: dict[str, str]) -> bytes:
    """A tar file; content that begins with ``->`` makes a symbolic link."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if content.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[2:]
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content.encode()))
    return raw.getvalue()


def _unpack(directory: Path, name: str, files: dict[str, str], *, compress: bool = True) -> Path:
    plain = _tar(files)
    blob, target = directory / f"{name}.blob", directory / name
    blob.write_bytes(gzip.compress(plain) if compress else plain)
    target.mkdir()
    unpack(blob, target, digest_of(plain))
    return target


def _contents(tree: Path) -> dict[str, str]:
    return {str(path.relative_to(tree)): path.read_text() for path in sorted(tree.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param([{"a": "1", "d/b": "2"}, {"a": "3"}], {"a": "3", "d/b": "2"}, id="the upper file wins"),
        pytest.param([{"d/a": "1", "d/b": "2"}, {"d/.wh.a": ""}], {"d/b": "2"}, id="a whiteout removes a file"),
        pytest.param([{"d/a": "1", "e": "2"}, {".wh.d": ""}], {"e": "2"}, id="a whiteout removes a directory"),
        pytest.param(
            [{"d/a": "1"}, {"d/.wh..wh..opq": "", "d/b": "2"}], {"d/b": "2"}, id="an opaque directory hides what was"
        ),
        pytest.param([{"d/a": "1"}, {".wh.d": "", "d/b": "2"}], {"d/b": "2"}, id="removed and made again at once"),
        pytest.param([{"d/a": "1"}, {"d": "file"}], {"d": "file"}, id="a file in the place of a directory"),
        pytest.param([{"d": "file"}, {"d/a": "1"}], {"d/a": "1"}, id="a directory in the place of a file"),
        pytest.param([{"a": "1", "l": "->a"}], {"a": "1", "l": "1"}, id="links are kept"),
    ],
)
def test_layers_are_laid_over_each_other(
    tmp_path: Path, layers: list[dict[str, str]], expected: dict[str, str]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    for number, files in enumerate(layers):
        lay_over(tree, _unpack(tmp_path, f"layer-{number}", files, compress=number % 2 == 0))

    assert _contents(tree) == expected


def test_a_layer_with_another_content_than_its_image_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(_tar({"a": "1"}))
    (tmp_path / "out").mkdir()

    with pytest.raises(DigestMismatch, match="unpacked layer blob: expected digest sha256:0000"):
        unpack(tmp_path / "blob", tmp_path / "out", f"sha256:{'0' * 64}")


@pytest.mark.parametrize("name", ["../outside", "d/../../outside"])
def test_a_layer_cannot_write_outside_of_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(tarfile.OutsideDestinationError):
        _unpack(tmp_path, "layer", {name: "x"})

    assert not (tmp_path / "outside").exists()
