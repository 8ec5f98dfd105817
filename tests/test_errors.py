"""The tree in the docstring of ``errors`` is the tree of its classes."""

from __future__ import annotations

import inspect
import re

from spillway import errors
from spillway.errors import SpillwayError


def test_the_tree_names_every_error_once_in_the_order_of_their_classes() -> None:
    source = inspect.getsource(errors)
    classes = re.findall(r"^class (\w+)\(SpillwayError\):", source, flags=re.MULTILINE)
    assert re.findall(r"[├└]── (\w+)", str(errors.__doc__)) == classes
    assert classes == [kind.__name__ for kind in vars(errors).values() if inspect.isclass(kind) and _below(kind)]


def _below(kind: type) -> bool:
    return issubclass(kind, SpillwayError) and kind is not SpillwayError
