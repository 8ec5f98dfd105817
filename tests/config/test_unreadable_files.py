"""A file or directory that is not there or is no YAML is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.config import load
from spillway.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "policy.yaml: expected a mapping at the top, got nothing"),
        ("- placement\n", "policy.yaml: expected a mapping at the top, got a list"),
        (
            "placement:\n  weights: {qos: 1\nruns: {}\n",
            "policy.yaml: line 3, column 5: not valid YAML: expected ',' or '}', but got ':'",
        ),
        (
            "placement: {}\nplacement: {}\n",
            "policy.yaml: line 2, column 1: not valid YAML: the key 'placement' is there twice",
        ),
        ("on: 1\n", "policy.yaml: line 1, column 1: not valid YAML: expected a text key, got True; put it in quotes"),
        ("a: 1\n--- \nb: 1\n", "policy.yaml: line 2, column 1: not valid YAML: but found another document"),
        ("a: !!python/object:os.system {}\n", None),
        ("a: &a [*a]\n", None),
        ("a: 2026-99-99\n", "policy.yaml: not valid YAML: month must be in 1..12"),
        ("a: \x00\n", None),
        ("[" * 800, None),
    ],
    ids=[
        "empty", "list", "open brace", "key twice", "key that is not text", "two documents", "tag that runs code",
        "list that contains itself", "impossible date", "control character", "nesting without end",
    ],
)  # fmt: skip
def test_text_that_is_no_yaml_mapping_is_one_clear_error(directory: Path, text: str, message: str | None) -> None:
    (directory / "policy.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert raised.value.file == "policy.yaml"
    if message is not None:
        assert str(raised.value) == message


def test_bytes_that_are_no_text_are_one_clear_error(directory: Path) -> None:
    (directory / "policy.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"^policy\.yaml: cannot be read as UTF-8 text: "):
        load(directory)


def test_a_missing_file_is_named_with_its_directory(directory: Path) -> None:
    (directory / "datasets.yaml").unlink()
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert str(raised.value) == f"datasets.yaml: no such file in {directory}"


def test_a_missing_directory_is_told_with_the_variable_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path / "nowhere")
    assert str(raised.value) == (
        f"{tmp_path}/nowhere: no such directory; SPILLWAY_CONFIG_DIR names the one with clusters.yaml"
    )
