"""What the node agent works out by itself: layers, environments, command lines, logs, leftovers."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import subprocess
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import DigestMismatch, SandboxError
from spillway.registries.digest import digest_of
from spillway.sandbox.agent.client import read_kubeconfig
from spillway.sandbox.agent.container import start_ticks, sweep
from spillway.sandbox.agent.environment import BadContainerConfig, command, environment
from spillway.sandbox.agent.images import Image, login, url_of
from spillway.sandbox.agent.layers import lay_over, unpack
from spillway.sandbox.agent.logs import LogRequest, LogWriter, last_text, read_log
from spillway.sandbox.agent.pod import GpuPool

# -- layers -----------------------------------------------------------------------------------------------------------


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


# -- environment ------------------------------------------------------------------------------------------------------

IMAGE = Image(
    digest="sha256:1", root=Path("/"), config={"Env": ["A=image", "PATH=/opt/bin"], "Entrypoint": ["run"], "Cmd": ["x"]}
)
POD = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "train"}},
    "spec": {"serviceAccountName": "worker"},
}
DATA = {("secrets", "s"): {"user": b"me", "key": b"k"}, ("configmaps", "c"): {"size": b"3"}}


def _environment(container: dict[str, Any]) -> dict[str, str]:
    async def fetch(kind: str, name: str) -> dict[str, bytes] | None:
        return DATA.get((kind, name))

    return asyncio.run(environment(container, IMAGE, POD, {"spec.nodeName": "n1"}, fetch))


def test_without_variables_of_its_own_a_container_has_its_images_and_a_runtimes_defaults() -> None:
    assert _environment({}) == {"A": "image", "PATH": "/opt/bin", "HOME": "/root", "HOSTNAME": "p"}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"env": [{"name": "A", "value": "pod"}]}, {"A": "pod"}, id="the pod's value wins"),
        pytest.param({"env": [{"name": "B"}]}, {"B": ""}, id="no value is an empty one"),
        pytest.param(
            {"env": [{"name": "B", "value": "$(A)-$$(A)-$(NO)"}]}, {"B": "image-$(A)-$(NO)"}, id="references expand"
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "user"}}}]},
            {"B": "me"},
            id="of a secret",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "size"}}}]},
            {"B": "3"},
            id="of a ConfigMap",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}}]},
            {},
            id="optional and absent",
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "s"}, "prefix": "S_"}]}, {"S_user": "me", "S_key": "k"}, id="all of one"
        ),
        pytest.param({"envFrom": [{"configMapRef": {"name": "no", "optional": True}}]}, {}, id="all of an absent one"),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}]},
            {"B": "train"},
            id="a label",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}, {"B": "n1"}, id="node"
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]},
            {"B": "ns"},
            id="a field of the pod",
        ),
    ],
)
def test_a_variable_of_the_pod(container: dict[str, Any], expected: dict[str, str]) -> None:
    defaults = {"A": "image", "PATH": "/opt/bin", "HOME": "/root", "HOSTNAME": "p"}

    assert _environment(container) == {**defaults, **expected}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"secretKeyRef": {"name": "no", "key": "k"}}, 'secret "no" not found'),
        ({"secretKeyRef": {"name": "s", "key": "no"}}, 'couldn\'t find key no in secret "s"'),
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "variable B has a source that this node agent does not"),
    ],
    ids=["no secret", "no key", "no ConfigMap", "unknown source"],
)
def test_a_reference_to_nothing_is_told(source: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadContainerConfig, match=problem):
        _environment({"env": [{"name": "B", "valueFrom": source}]})


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param({}, ["run", "x"], id="the image's entrypoint and command"),
        pytest.param({"args": ["y"]}, ["run", "y"], id="arguments replace the image's command"),
        pytest.param({"command": ["go"]}, ["go"], id="a command replaces both"),
        pytest.param({"command": ["go"], "args": ["$(A)"]}, ["go", "image"], id="references expand"),
    ],
)
def test_a_command_line(container: dict[str, Any], words: list[str]) -> None:
    assert command(container, IMAGE, {"A": "image"}) == words


def test_an_image_without_a_command_needs_one_from_the_pod() -> None:
    with pytest.raises(BadContainerConfig, match="no command specified: image sha256:1 has neither"):
        command({}, Image(digest="sha256:1", root=Path("/"), config={}), {})


# -- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("localhost:5000", "http://localhost:5000"),
        ("registry.example.com", "https://registry.example.com"),
    ],
)
def test_only_registries_on_loopback_are_spoken_to_without_tls(host: str, url: str) -> None:
    assert url_of(host) == url


def test_a_login_is_found_in_either_form_of_a_pull_secret() -> None:
    plain = {"auths": {"r:5000": {"username": "u", "password": "p"}}}
    encoded = {"auths": {"r:5000": {"auth": base64.b64encode(b"u:p:q").decode()}}}

    assert login([{}, plain], "r:5000") == ("u", "p")
    assert login([encoded], "r:5000") == ("u", "p:q")
    assert login([plain], "other:5000") == (None, None)


# -- logs -------------------------------------------------------------------------------------------------------------


def _log(path: Path, *lines: str) -> list[datetime]:
    """Write lines a second apart; gives their times."""
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    times = [start + timedelta(seconds=number) for number in range(len(lines))]
    content = [f"{t:%Y-%m-%dT%H:%M:%S.000000000Z} stdout F {line}\n" for t, line in zip(times, lines, strict=True)]
    path.write_text("".join(content))
    return times


def _read(path: Path, request: LogRequest) -> str:
    async def read() -> bytes:
        return b"".join([chunk async for chunk in read_log(path, request, lambda: True)])

    return asyncio.run(read()).decode()


def test_a_log_is_given_in_every_way_that_clients_ask(tmp_path: Path) -> None:
    file = tmp_path / "log"
    times = _log(file, "a", "b b", "c")

    assert _read(file, LogRequest()) == "a\nb b\nc\n"
    assert _read(file, LogRequest(tail=1)) == "c\n"
    assert _read(file, LogRequest(tail=0)) == ""
    assert _read(file, LogRequest(since=times[1])) == "b b\nc\n"
    assert _read(file, LogRequest(limit_bytes=3)) == "a\nb"
    assert _read(file, LogRequest(tail=1, timestamps=True)) == "2026-01-01T12:00:02.000000000Z c\n"
    assert _read(file, LogRequest(follow=True)) == "a\nb b\nc\n"
    assert _read(tmp_path / "none", LogRequest(follow=True)) == ""
    assert last_text(file, lines=2, limit_bytes=4) == " b\nc\n"[-4:]


def test_a_followed_log_gives_what_comes_later_even_of_a_removed_pod_and_ends_with_the_container(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log"
    over = asyncio.Event()

    async def follow() -> list[bytes]:
        source = asyncio.StreamReader()
        writer = LogWriter(file)
        copying = asyncio.create_task(writer.copy(source, "stdout"))
        source.feed_data(b"first\nsecond, in tw")
        chunks = []
        async for chunk in read_log(file, LogRequest(follow=True), over.is_set):
            chunks.append(chunk)
            if not over.is_set():
                source.feed_data(b"o parts\nno end of line")
                source.feed_eof()
                await copying
                file.unlink()
                over.set()
        writer.close()
        return chunks

    assert b"".join(asyncio.run(follow())) == b"first\nsecond, in two parts\nno end of line\n"


def test_a_line_longer_than_the_buffer_is_cut_and_not_lost(tmp_path: Path) -> None:
    async def write() -> None:
        source = asyncio.StreamReader(limit=16)
        writer = LogWriter(tmp_path / "log")
        source.feed_data(b"x" * 50 + b"\nnext\n")
        source.feed_eof()
        await writer.copy(source, "stdout")
        writer.close()

    asyncio.run(write())

    lines = _read(tmp_path / "log", LogRequest()).splitlines()
    assert ("".join(lines[:-1]), lines[-1]) == ("x" * 50, "next")


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_gpus_are_handed_out_lowest_first_and_never_twice() -> None:
    pool = GpuPool(4)

    first, second = pool.take(1), pool.take(2)
    assert (first, second, pool.take(2)) == ([0], [1, 2], None)

    pool.give_back([0])
    assert pool.take(2) == [0, 3]


def test_the_sweep_kills_what_an_agent_left_and_nothing_that_took_over_its_number(tmp_path: Path) -> None:
    left, innocent = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2))
    directory = tmp_path / "uid"
    directory.mkdir()
    (directory / "a.pid").write_text(f"{left.pid} {start_ticks(left.pid)}")
    (directory / "b.pid").write_text(f"{innocent.pid} 1")
    (directory / "c.pid").write_text("")
    try:
        assert sweep(tmp_path) == 1
        assert left.wait(5) == -9
        assert innocent.poll() is None
        assert list(tmp_path.rglob("*.pid")) == []
    finally:
        for process in (left, innocent):
            process.kill()
            process.wait()


@pytest.mark.parametrize("content", ["", "current-context: x\ncontexts: []\n", "{", "current-context: x"], ids=repr)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)

    with pytest.raises(SandboxError, match=f"{file}: expected a kubeconfig with a current context"):
        read_kubeconfig(file)
