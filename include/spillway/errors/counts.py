"""Numbers of things as a sentence has them."""

from __future__ import annotations

from decimal import Decimal


def counted(number: int | float | Decimal, thing: str, things: str | None = None, *, form: str = "") -> str:
    """``1 GPU``, ``2 GPUs``, ``0.5 GPUs``.

    Args:
        things: several of them, where that is not the word with an ``s``.
        form: of the number, as in ``format``.
    """
    return f"{number:{form}} {thing if number == 1 else things or f'{thing}s'}"
