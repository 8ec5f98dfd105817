"""Reads and writes samples within a transaction that its caller holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, insert, select, tuple_, update

from spillway.ledger.sample_tables import pod_starts, pool_samples, sampled_nodes, samples
from spillway.model import NodeSample, PodStart, PoolSample, Sample
from spillway.sampling import average

SILENCE = timedelta(minutes=2)
"""Of a node that was not seen for so long nobody knows what it did meanwhile."""

_POOL = tuple(field.name for field in fields(PoolSample))


def seconds(step: timedelta) -> int:
    return step // timedelta(seconds=1)


def pool_sample(row: RowMapping) -> PoolSample:
    return PoolSample(**{name: row[name] for name in _POOL})


def fetch_samples(connection: Connection, step: timedelta, *, since: datetime, before: datetime) -> tuple[Sample, ...]:
    """Those from ``since`` on and before that moment, oldest first."""
    own, its = samples.c, pool_samples.c
    moments = select(samples).where(own.step_seconds == seconds(step), own.at >= since, own.at < before)
    parts = select(pool_samples).where(its.step_seconds == seconds(step), its.at >= since, its.at < before)
    pools: dict[datetime, list[PoolSample]] = defaultdict(list)
    for row in connection.execute(parts.order_by(its.cluster, its.pool)).mappings():
        pools[row["at"]].append(pool_sample(row))
    return tuple(
        Sample(
            at=row["at"],
            step=step,
            taken=row["taken"],
            pools=tuple(pools[row["at"]]),
            queue=row["queue"],
            unknown=row["unknown"],
        )
        for row in connection.execute(moments.order_by(own.at)).mappings().all()
    )


def fetch_sample(connection: Connection, step: timedelta, at: datetime) -> Sample | None:
    """That moment's, None when there is none."""
    found = fetch_samples(connection, step, since=at, before=at + timedelta(microseconds=1))
    return next(iter(found), None)


def write_sample(connection: Connection, sample: Sample) -> None:
    """Put it in the place of whatever there is of its step and moment."""
    delete_samples(connection, sample.step, [sample.at])
    same = {"step_seconds": seconds(sample.step), "at": sample.at}
    row = {"taken": sample.taken, "queued_runs": sample.queued_runs, "pending_gpus": sample.pending_gpus}
    connection.execute(insert(samples).values(same | row | {"queue": sample.queue, "unknown": sample.unknown}))
    pools = [same | {name: getattr(pool, name) for name in _POOL} for pool in sample.pools]
    if pools:
        connection.execute(insert(pool_samples), pools)


def delete_samples(connection: Connection, step: timedelta, moments: Collection[datetime]) -> None:
    for table in (pool_samples, samples):
        own = table.c
        connection.execute(delete(table).where(own.step_seconds == seconds(step), own.at.in_(moments)))


def average_step(connection: Connection, step: timedelta, longer: timedelta, start: datetime) -> None:
    """Write the average of a longer step, unless the one that is there is of more: its samples are dropped by now."""
    found = fetch_samples(connection, step, since=start, before=start + longer)
    if not found:
        return
    known = connection.execute(select(samples.c.taken).where(_moment(longer, start))).scalar()
    counted = average(found, start, longer)
    if known is None or counted.taken >= known:
        write_sample(connection, counted)
    of_step = (samples.c.step_seconds == seconds(step)) & (samples.c.at >= start) & (samples.c.at < start + longer)
    connection.execute(update(samples).where(of_step).values(rolled_up=True))


def write_nodes(connection: Connection, cluster: str, nodes: Sequence[NodeSample], at: datetime) -> None:
    """Put the nodes in the place of those that the cluster had; what was seen later stays."""
    rows = connection.execute(select(sampled_nodes).where(sampled_nodes.c.cluster == cluster)).mappings().all()
    before = {row["name"]: NodeSample(**row) for row in rows}
    if any(node.seen_at > at for node in before.values()):
        return
    connection.execute(delete(sampled_nodes).where(sampled_nodes.c.cluster == cluster))
    new = [_since_when(node, before.get(node.name)) for node in nodes]
    names = [field.name for field in fields(NodeSample)]
    if new:
        connection.execute(insert(sampled_nodes), [{name: getattr(node, name) for name in names} for node in new])


def _since_when(node: NodeSample, before: NodeSample | None) -> NodeSample:
    """With the moment since when it idles, where it was seen to all the time."""
    if node.idle_since is None or before is None or before.idle_since is None:
        return node
    same = before.created_at == node.created_at and node.seen_at - before.seen_at <= SILENCE
    return replace(node, idle_since=before.idle_since) if same else node


def write_starts(connection: Connection, starts: Iterable[PodStart]) -> None:
    """Add those that are not there."""
    own = pod_starts.c
    new = {(start.cluster, start.pod, start.created_at): start for start in starts}
    for some in _portions(sorted(new)):
        same = tuple_(own.cluster, own.pod, own.created_at).in_(some)
        for key in connection.execute(select(own.cluster, own.pod, own.created_at).where(same)).all():
            new.pop(tuple(key), None)
    names = [field.name for field in fields(PodStart)]
    if new:
        rows = [{name: getattr(start, name) for name in names} for start in new.values()]
        connection.execute(insert(pod_starts), rows)


def _portions(keys: Sequence[tuple[str, str, datetime]]) -> Iterable[Sequence[tuple[str, str, datetime]]]:
    """No database takes any number of parameters."""
    return (keys[first : first + 200] for first in range(0, len(keys), 200))


def _moment(step: timedelta, at: datetime) -> ColumnElement[bool]:
    return (samples.c.step_seconds == seconds(step)) & (samples.c.at == at)
