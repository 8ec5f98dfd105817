"""What a conditional write to an S3 server asks for."""

from __future__ import annotations

OF_BOTO = {"if-none-match": "IfNoneMatch", "if-match": "IfMatch"}
"""How boto3 calls the headers."""


def conditions(if_absent: bool, if_match: str | None) -> tuple[dict[str, str], str]:
    """The request's condition as headers, and how a message calls it."""
    if if_absent and if_match is not None:
        raise ValueError("if_absent and if_match exclude each other")
    if if_absent:
        return {"if-none-match": "*"}, "the object is absent"
    if if_match is not None:
        return {"if-match": f'"{if_match}"'}, f"its etag is {if_match}"
    return {}, ""
