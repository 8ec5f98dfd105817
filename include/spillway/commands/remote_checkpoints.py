"""What the identity that pods of other sites have at a dataset's home may do with the checkpoints that lie there.

Its own jobs commit there, so it has to read and write what is theirs; what is any other run's it must not touch.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from spillway.checkpoints.layout import progress_key
from spillway.commands.rights import HARM, LIST, MISS, READ, WRITE, rights, words
from spillway.config import Configuration
from spillway.errors import SpillwayError
from spillway.model import Cluster, ImageUse
from spillway.preflight import Gap, remedy
from spillway.runs.identity import run_base, run_prefix
from spillway.runs.services import Connect
from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore
from spillway.threads import worker_threads

NOBODY = "spillway-preflight"
"""The name of a job that there is not: what may be done with its runs may be done with any."""
NEEDED = (READ, WRITE)
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """``own``: the jobs of the datasets that name it, ``others``: all other jobs, as their files say."""

    home: Cluster
    conn_id: str
    datasets: Sequence[str]
    own: Sequence[str]
    others: Sequence[str]

    def gap(self, problem: str, fix: str, *, checked: bool = True) -> Gap:
        part = f"dataset {', '.join(self.datasets)} (checkpoints)"
        told = f"the identity of Connection '{self.conn_id}' {problem}"
        return Gap(cluster=self.home.name, part=part, problem=told, fix=fix, checked=checked)

    @property
    def limit(self) -> str:
        """What to let it do."""
        name, begins = self.home.object_store.checkpoint_bucket, [f"'{run_prefix(job)}'" for job in self.own]
        which = " or ".join(begins) or f"the names of the jobs of {' and '.join(self.datasets)}"
        return f"let the store limit it to listing, reading and writing keys of bucket {name} that begin with {which}"


def checkpoint_gaps(declared: Configuration, uses: Collection[ImageUse], connect: Connect) -> Iterator[Gap]:
    """For each Connection of a ``remote_read`` what it may do and must not, and what it may not do and has to.

    Each right is tried on an object of a run that nobody has, named as runs of the job are, which is then deleted.
    """
    reading = [dataset for dataset in declared.datasets.values() if dataset.remote_read is not None]
    for home, conn_id in dict.fromkeys((dataset.home, dataset.remote_read) for dataset in reading):
        names = [dataset.name for dataset in reading if (dataset.home, dataset.remote_read) == (home, conn_id)]
        own = {use.job for use in uses if use.dataset in names}
        identity = _Identity(
            home=declared.clusters[home],
            conn_id=str(conn_id),
            datasets=names,
            own=sorted(own),
            others=sorted({use.job for use in uses} - own),
        )
        try:
            anybodys, jobs = _tried(identity, connect)
        except SpillwayError as problem:
            yield identity.gap(f"could not be tried: {problem.told}", remedy(problem, identity.conn_id))
        else:
            yield from _too_much(identity, anybodys, jobs)
            yield from _too_little(identity, jobs)


def _too_much(identity: _Identity, anybodys: frozenset[str], jobs: Mapping[str, frozenset[str]]) -> Iterator[Gap]:
    found = {f"every run at {identity.home.name}": anybodys}
    if not anybodys.intersection(HARM):
        found |= {f"job '{job}'": jobs[job] for job in identity.others}
    for whose, may in found.items():
        if may.intersection(HARM):
            fix = identity.limit if may is anybodys else f"{identity.limit}; rename {whose} where its runs begin so too"
            yield identity.gap(f"can {words(may)} checkpoints of {whose}", fix)
    if LIST in anybodys and not anybodys.intersection(HARM):
        problem = f"can list the checkpoints of every run at {identity.home.name}: their names, not what is in them"
        yield identity.gap(problem, f"{identity.limit}, where it can limit lists (s3:prefix)", checked=False)


def _too_little(identity: _Identity, jobs: Mapping[str, frozenset[str]]) -> Iterator[Gap]:
    if not identity.own:
        unknown = "was not tried with checkpoints of its own jobs: no job file names "
        yield identity.gap(unknown + " or ".join(identity.datasets), "ask again when one does", checked=False)
    for job in identity.own:
        lacking = set(NEEDED) - jobs[job]
        if lacking:
            problem = f"cannot {words(lacking)} checkpoints of job '{job}'"
            yield identity.gap(f"{problem}: its launches elsewhere would fail once they hold GPUs", identity.limit)
        elif MISS not in jobs[job]:
            problem = f"is not told that a checkpoint of job '{job}' is not there, but refused: its pods would fail"
            yield identity.gap(problem, f"{identity.limit}; on AWS that takes s3:ListBucket")


def _tried(identity: _Identity, connect: Connect) -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    """What the identity may do with the checkpoints of any run, and with those of each job; not of other jobs where
    that follows from the first.

    Raises:
        SpillwayError: the bucket cannot be asked.
    """
    ref = identity.home.object_store
    mine, theirs = (
        bucket(connect(conn_id), ref.checkpoint_bucket, identity.home.name)
        for conn_id in (ref.connection, identity.conn_id)
    )
    anybodys = _rights(theirs, mine, NOBODY)
    jobs = [*identity.own, *(() if anybodys.intersection(HARM) else identity.others)]
    with worker_threads(_AT_ONCE, "preflight") as pool:
        return anybodys, dict(zip(jobs, pool.map(partial(_rights, theirs, mine), jobs), strict=True))


def _rights(theirs: ObjectStore, mine: ObjectStore, job: str) -> frozenset[str]:
    """What may be done to checkpoints of the job's runs; of all that lies there nothing is decided by progress."""
    run = f"{run_base(job, {'preflight': str(uuid.uuid4())}, NOBODY)}-1"
    return rights(theirs, mine, progress_key(run, 1))
