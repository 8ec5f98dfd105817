"""What is kept of a pod's log is bounded and can be stored anywhere."""

from __future__ import annotations

import pytest

from spillway.runs.log_tail import TAIL_BYTES, TAIL_LINES, last_lines

HALF = "x" * (TAIL_BYTES // 2)
UMLAUT = "\N{LATIN SMALL LETTER U WITH DIAERESIS}"


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param(["a", "", "b"], ("a", "", "b"), id="few"),
        pytest.param([str(i) for i in range(1000)], tuple(str(i) for i in range(1000 - TAIL_LINES, 1000)), id="many"),
        pytest.param(["a", HALF, HALF], (HALF, HALF), id="long"),
        pytest.param(["a", HALF + "y", HALF], (HALF,), id="no part of an earlier line"),
        pytest.param(["a", "y" + 2 * HALF], (2 * HALF,), id="the end of a line that is too long"),
        pytest.param([UMLAUT + HALF + HALF[1:]], (HALF + HALF[1:],), id="no part of a character"),
        pytest.param(["a\0b"], ("a\N{REPLACEMENT CHARACTER}b",), id="NUL"),
    ],
)
def test_the_last_lines_that_fit_are_kept(lines: list[str], kept: tuple[str, ...]) -> None:
    assert last_lines(lines) == kept


def test_lines_are_added_to_those_that_were_kept_before() -> None:
    lines = [str(i) * 100 for i in range(1000)]
    kept: tuple[str, ...] = ()
    for start in range(0, 1000, 7):
        kept = last_lines((*kept, *lines[start : start + 7]))
    assert kept == last_lines(lines)
