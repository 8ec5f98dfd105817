"""Blobs on their way from one registry to another, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from spillway.errors import DigestMismatch, SpillwayError
from spillway.registries.base import ImageRegistry
from spillway.registries.content import Descriptor

PARALLEL_BLOBS = 6
RETRY_PAUSES_SECONDS = (0.5, 2.0, 6.0)
"""Pauses before a blob is begun again; together they outlast the restart of a registry."""


def copy_blobs(source: ImageRegistry, destination: ImageRegistry, repository: str, blobs: Sequence[Descriptor]) -> None:
    """Copy every blob; the first failure ends the others and is raised."""
    stopped = threading.Event()
    with ThreadPoolExecutor(PARALLEL_BLOBS) as threads:
        futures = [threads.submit(_copy, source, destination, repository, blob, stopped) for blob in blobs]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
        except BaseException:
            stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


class _Stopped(Exception):
    """Another blob has failed; this one need not be finished."""


def _copy(
    source: ImageRegistry, destination: ImageRegistry, repository: str, blob: Descriptor, stopped: threading.Event
) -> None:
    for pause in RETRY_PAUSES_SECONDS:
        try:
            return _copy_once(source, destination, repository, blob, stopped)
        except SpillwayError as problem:
            if not problem.retry_helps or stopped.wait(pause):
                raise
    return _copy_once(source, destination, repository, blob, stopped)


def _copy_once(
    source: ImageRegistry, destination: ImageRegistry, repository: str, blob: Descriptor, stopped: threading.Event
) -> None:
    def chunks() -> Iterator[bytes]:
        for chunk in source.read_blob(repository, blob.digest):
            if stopped.is_set():
                raise _Stopped
            yield chunk

    try:
        destination.put_blob(repository, blob.digest, chunks(), size_bytes=blob.size_bytes)
    except DigestMismatch:
        # Two copies of one blob at the same moment: the one that ends second may be told off for it.
        if not destination.has_blob(repository, blob.digest):
            raise
