"""The text of a log as an API gives it with times, read into lines of which none is shown twice."""

from __future__ import annotations

from datetime import datetime

from spillway.clouds.base import LogLines
from spillway.clouds.facts import moment


def new_lines(body: bytes, since: datetime | None, *, cut: bool) -> LogLines:
    """The lines after ``since``, without the time that each begins with; of a cut body without the last, cut line.

    The API reads ``sinceTime`` in whole seconds and so gives lines again; their own times tell which.
    """
    text = body.decode(errors="replace")
    if cut and "\n" in text:
        text = text[: text.rfind("\n")]
    lines, until = [], since
    for line in text.split("\n"):
        stamp, _, content = line.partition(" ")
        at = _stamp(stamp)
        if at is not None and (since is None or at > since):
            lines.append(content)
            until = at
    return LogLines(lines=tuple(lines), until=until)


def _stamp(text: str) -> datetime | None:
    """The time that a line begins with; None for what the node says itself, such as that the file is gone."""
    try:
        return moment(text)
    except ValueError:
        return None
