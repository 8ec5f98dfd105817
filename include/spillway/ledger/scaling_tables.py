"""The tables of the scaler: what people order, each change of a pool and what it was planned from, what people are told
of, and whose turn it is.
"""

from __future__ import annotations

from sqlalchemy import JSON, Column, Index, Integer, String, Table, Text

from spillway.ledger.columns import Moment, Packed, Value, Word
from spillway.ledger.schema import metadata
from spillway.ledger.values import ScalingLook
from spillway.model import OrderKind, PoolTarget

scaling_orders = Table(
    "scaling_orders",
    metadata,
    Column("order", String(63), primary_key=True),
    Column("kind", Word(OrderKind), nullable=False),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("base_nodes", Integer, nullable=False),
    Column("ordered_at", Moment, nullable=False),
    Column("ordered_by", Text, nullable=False),
    Column("until", Moment, nullable=False),
    Column("ready_by", Moment),
    Column("remove", JSON, nullable=False),
    Column("ready_at", Moment),
    Column("withdrawn_at", Moment),
)

scaling_changes = Table(
    "scaling_changes",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("before", Integer, nullable=False),
    Column("target", Value(PoolTarget), nullable=False),
    Column("decided_at", Moment, nullable=False),
    Column("actor", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("asked_at", Moment),
    Column("problem", Text),
    Column("reached_at", Moment),
    Column("look", Integer),
    Index("scaling_changes_of_pool", "cluster", "pool", "number"),
)
"""Every change that the scaler made or tried: on record before a provider is asked."""

scaling_looks = Table(
    "scaling_looks",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("taken_at", Moment, nullable=False, index=True),
    Column("look", Packed(ScalingLook), nullable=False),
)
"""What changes were planned from, and now and then what none was; changes outlive it."""

scaling_alerts = Table(
    "scaling_alerts",
    metadata,
    Column("alert", String(200), primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("seen_at", Moment, nullable=False),
)

scaling_turn = Table(
    "scaling_turn",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("began_at", Moment, nullable=False),
    Column("until", Moment, nullable=False),
)
"""Whose turn it is to scale: at most one row that is not over."""

scaling_watches = Table(
    "scaling_watches",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("began_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
)
"""Since when and until when somebody looked at the node pools again and again, without a gap."""
