"""The tables of samples: a row a moment, a row a pool of it, what nodes are like now, and how pods started."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Boolean, Column, Float, ForeignKeyConstraint, Index, Integer, Table, Text, false

from spillway.ledger.columns import Moment, Value
from spillway.ledger.schema import metadata
from spillway.model import DeviceUse, JobDemand, JobUse

samples = Table(
    "samples",
    metadata,
    Column("step_seconds", Integer, primary_key=True, autoincrement=False),
    Column("at", Moment, primary_key=True),
    Column("taken", Integer, nullable=False),
    Column("queued_runs", Float, nullable=False),
    Column("pending_gpus", Float, nullable=False),
    Column("queue", Value(tuple[JobDemand, ...]), nullable=False),
    Column("unknown", Value(Mapping[str, str]), nullable=False),
    Column("rolled_up", Boolean, nullable=False, server_default=false()),
    Index("samples_to_roll_up", "rolled_up", "step_seconds", "at"),
)
"""``rolled_up``: the average of the next longer step counts it."""

pool_samples = Table(
    "pool_samples",
    metadata,
    Column("step_seconds", Integer, primary_key=True, autoincrement=False),
    Column("cluster", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("at", Moment, primary_key=True),
    Column("taken", Integer, nullable=False),
    Column("gpus", Float, nullable=False),
    Column("used_gpus", Float, nullable=False),
    Column("nodes", Float, nullable=False),
    Column("idle_nodes", Float, nullable=False),
    Column("jobs", Value(tuple[JobUse, ...]), nullable=False),
    Column("device", Value(DeviceUse)),
    Column("measured", Integer, nullable=False),
    ForeignKeyConstraint(["step_seconds", "at"], ["samples.step_seconds", "samples.at"], name="pool_samples_moment"),
    Index("pool_samples_of_moment", "step_seconds", "at"),
)

sampled_nodes = Table(
    "sampled_nodes",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("gpus", Float, nullable=False),
    Column("used_gpus", Float, nullable=False),
    Column("created_at", Moment),
    Column("ready_at", Moment),
    Column("idle_since", Moment),
)
"""Those that each cluster had when it was read last."""

pod_starts = Table(
    "pod_starts",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("pod", Text, primary_key=True),
    Column("created_at", Moment, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("started_at", Moment, nullable=False, index=True),
)
