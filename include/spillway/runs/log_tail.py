"""The last lines of a pod's log, few and plain enough to travel to whoever goes on when the pod is lost."""

from __future__ import annotations

from collections.abc import Sequence

TAIL_LINES = 200
TAIL_BYTES = 32 * 1024
"""They wait in a row of Airflow's database until a worker takes the task up again."""


def last_lines(lines: Sequence[str], *, at_most: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines, oldest first: no more than ``at_most``, nor than TAIL_BYTES of UTF-8; of a longer one its end.

    A NUL, which PostgreSQL stores in no text, becomes a replacement character.
    """
    kept: list[str] = []
    left = TAIL_BYTES
    for line in reversed(lines[-at_most:]):
        text = line.replace("\0", "\N{REPLACEMENT CHARACTER}").encode()
        if len(text) > left and kept:
            break
        kept.append(text[-left:].decode(errors="ignore"))
        left -= len(text)
    return tuple(reversed(kept))
