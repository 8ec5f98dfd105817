"""The public digits data set, cut into objects as a data set on an object store is."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

DIGITS = "sklearn/datasets/data/digits.csv.gz"


def digits_shards(count: int) -> Mapping[str, bytes]:
    """``count`` objects by name, together all 1797 images in their order: a line has 64 pixels (0-16) and the digit.

    Source: the test part of "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, as
    scikit-learn ships it.
    """
    # Read as a file: to import the library takes seconds at every `up`.
    packed = Path(str(distribution("scikit-learn").locate_file(DIGITS))).read_bytes()
    lines = gzip.decompress(packed).splitlines(keepends=True)
    cuts = [len(lines) * shard // count for shard in range(count + 1)]
    return {f"shard-{shard:03d}.csv": b"".join(lines[cuts[shard] : cuts[shard + 1]]) for shard in range(count)}
