"""What departments have spent of their budgets, and what is promised, in the transaction that promises more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection, RowMapping, select

from spillway.attribution import total_of
from spillway.budget import cost_within, expected_end, limit_of, month_in
from spillway.ledger.connection import Database
from spillway.ledger.rows import HELD, OPEN, fetch_attempts, select_attempts
from spillway.ledger.schema import attempts, costs, moves, runs
from spillway.model import Billing, BudgetState, Candidate, Cluster, JobSpec, PlacementPolicy, Snapshot
from spillway.months import Month, month_of, months_between
from spillway.pricing import EXACT, hourly_price, monthly_fixed_cost

_BOUGHT = tuple(billing for billing in Billing if billing.bought)
_NONE = Decimal(0)


class BudgetStore:
    """Budgets; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def budgets(
        self, policy: PlacementPolicy, now: datetime, clusters: Iterable[Cluster] = ()
    ) -> tuple[BudgetState, ...]:
        """Every department's budget of this month, by name; departments without a limit are left out.

        Args:
            clusters: whose declared prices are those of promises that were made without one.
        """
        with self.database.reading() as connection:
            return read_states(connection, policy, now, tuple(clusters), [month_of(now, policy.time_zone)])


def read_states(
    connection: Connection,
    policy: PlacementPolicy,
    now: datetime,
    clusters: Sequence[Cluster],
    months: Sequence[Month],
) -> tuple[BudgetState, ...]:
    """Every department's budgets of the months, by name."""
    departments = sorted({budget.department for budget in policy.budgets})
    found = []
    for department in departments:
        running = [p for p in _promises(connection, department, now, policy.time_zone, clusters, None) if p.runs]
        for state in _states(connection, policy, department, months, now, clusters=clusters, leaving=None):
            before = _hourly_before(connection, department, month_in(state), policy.time_zone, running, now)
            found.append(replace(state, hourly_before=before))
    return tuple(found)


def read_budgets(
    connection: Connection,
    job: JobSpec,
    policy: PlacementPolicy,
    snapshot: Snapshot,
    now: datetime,
    *,
    leaving: str | None,
) -> tuple[BudgetState, ...]:
    """The budgets of the months in which the job would run, the first month first; none where nothing is limited.

    Args:
        snapshot: whose declared prices are those of promises that were made without one.
        leaving: a run that gives up its place for the one that is looked for.
    """
    if not any(budget.department == job.department for budget in policy.budgets):
        return ()
    months = months_between(now, expected_end(job, now, now, policy.time_zone), policy.time_zone)
    return _states(connection, policy, job.department, months, now, clusters=snapshot.declared, leaving=leaving)


def _states(
    connection: Connection,
    policy: PlacementPolicy,
    department: str,
    months: Iterable[Month],
    now: datetime,
    *,
    clusters: Sequence[Cluster],
    leaving: str | None,
) -> tuple[BudgetState, ...]:
    limits = [(month, limit_of(policy.budgets, department, month.name)) for month in months]
    limited = [(month, limit) for month, limit in limits if limit is not None]
    if not limited:
        return ()
    doubt = _doubt(connection, now, policy.time_zone)
    held = _promises(connection, department, now, policy.time_zone, clusters, leaving)
    return tuple(
        BudgetState(
            department=department,
            month=month.name,
            starts_at=month.starts_at,
            ends_at=month.ends_at,
            limit=limit,
            booked=_booked(connection, department, month),
            accrued=total_of([p.cost(month, now) for p in held if p.runs]),
            reserved=total_of([p.cost(month, p.end) for p in held]),
            doubt=doubt,
        )
        for month, limit in limited
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """Bought GPUs, or cores, that an attempt has, or a move holds for the next one."""

    units: Decimal
    start: datetime
    end: datetime
    price: Decimal
    fixed: Decimal
    runs: bool

    def cost(self, month: Month, end: datetime) -> Decimal:
        return cost_within(month, self.units, self.start, end, price=self.price, fixed=self.fixed)


def _promises(
    connection: Connection,
    department: str,
    now: datetime,
    zone: str,
    clusters: Sequence[Cluster],
    leaving: str | None,
) -> tuple[_Promise, ...]:
    """What is promised to the department, but what is held for the next attempt of the run that is ``leaving``.

    An attempt whose pod is booked has ended, though whoever booked it may have died before it could settle it.
    """
    bought = attempts.c.billing.in_(_BOUGHT)
    its_pod = (costs.c.run == attempts.c.run) & (costs.c.cluster == attempts.c.cluster)
    booked = select(costs.c.run).where(its_pod, costs.c.pod_uid == attempts.c.pod_uid).exists()
    opened = fetch_attempts(connection, select_attempts().where(OPEN, bought, ~booked))
    found = []
    for attempt in opened:
        if attempt.job.department != department:
            continue
        start = attempt.started_at or now
        end = now if attempt.run == leaving else expected_end(attempt.job, start, now, zone)
        runs_now = attempt.started_at is not None
        price, fixed = attempt.price_per_gpu_hour, attempt.fixed_cost_per_gpu_month
        if price is None:
            price, fixed = _declared(clusters, attempt.candidate)
        found.append(
            _Promise(
                units=attempt.job.priced_units, start=start, end=end, price=price, fixed=fixed or _NONE, runs=runs_now
            )
        )
    ahead = select(moves, runs.c.job).join_from(moves, runs, moves.c.run == runs.c.run)
    for row in connection.execute(ahead.where(HELD, moves.c.billing.in_(_BOUGHT))).mappings():
        job: JobSpec = row["job"]
        if job.department == department and row["run"] != leaving:
            target = Candidate(cluster=row["cluster"], pool=row["pool"], billing=row["billing"])
            price, fixed = _declared(clusters, target)
            end = expected_end(job, now, now, zone)
            found.append(_Promise(units=job.priced_units, start=now, end=end, price=price, fixed=fixed, runs=False))
    return tuple(found)


def _declared(clusters: Sequence[Cluster], place: Candidate) -> tuple[Decimal, Decimal]:
    """What a place costs as it is declared now; of one that is not declared any more nobody knows."""
    pool = next((c.find_pool(place.pool) for c in clusters if c.name == place.cluster), None)
    if pool is None:
        return _NONE, _NONE
    return hourly_price(pool, place.billing) or _NONE, monthly_fixed_cost(pool, place.billing)


def _booked(connection: Connection, department: str, month: Month) -> Decimal:
    """What bought GPUs of the department have cost in the month, the pods that have ended.

    Nearly all lie in one month and have no share in fixed costs: of these nothing but the amount is read, for whoever
    reserves waits for it.
    """
    # Where they end is said for all of them, as the index is by that: whoever reserves must not read the history.
    its = (
        (costs.c.department == department)
        & costs.c.billing.in_(_BOUGHT)
        & (costs.c.started_at < month.ends_at)
        & (costs.c.ended_at >= month.starts_at)
    )
    whole = (
        (costs.c.started_at >= month.starts_at)
        & (costs.c.ended_at < month.ends_at)
        & (costs.c.fixed_cost_per_gpu_month == _NONE)
    )
    amounts = list(connection.execute(select(costs.c.amount).where(its, whole)).scalars())
    others = connection.execute(select(costs).where(its, ~whole)).mappings()
    return total_of([*amounts, *(_part(row, month) for row in others)])


def _hourly_before(
    connection: Connection, department: str, month: Month, zone: str, running: Iterable[_Promise], now: datetime
) -> Decimal | None:
    """What bought GPUs of the department have cost an hour of the month before; None where it had used none by then.

    Those that run on are not booked yet, and have cost as much of it.
    """
    since = [promise for promise in running if promise.start < month.starts_at]
    its = (costs.c.department == department) & costs.c.billing.in_(_BOUGHT) & (costs.c.ended_at < month.starts_at)
    if not since and connection.execute(select(costs.c.run).where(its).limit(1)).first() is None:
        return None
    before = month_of(month.starts_at - timedelta(hours=1), zone)
    spent = total_of([_booked(connection, department, before), *(promise.cost(before, now) for promise in since)])
    return EXACT.divide(spent, before.hours)


def _part(row: RowMapping, month: Month) -> Decimal:
    fixed, price = row["fixed_cost_per_gpu_month"], row["price_per_gpu_hour"]
    if not fixed and month.starts_at <= row["started_at"] and row["ended_at"] <= month.ends_at:
        whole: Decimal = row["amount"]
        return whole
    return cost_within(month, row["gpus"] or row["cores"], row["started_at"], row["ended_at"], price=price, fixed=fixed)


def _doubt(connection: Connection, now: datetime, zone: str) -> str | None:
    """Why the clock here cannot tell the month: an attempt that is open is on record from a later one.

    Of those that have ended none counts, or one host with a wrong clock would stop all buying for good.
    """
    columns = (attempts.c.run, attempts.c.number, attempts.c.reserved_at)
    later = select(*columns).where(OPEN, attempts.c.reserved_at >= month_of(now, zone).ends_at)
    found = connection.execute(later.order_by(attempts.c.reserved_at.desc(), *columns[:2])).first()
    if found is None:
        return None
    run, number, reserved_at = found
    return (
        f"the clock here says {now.isoformat(timespec='seconds')}, and attempt '{run}-{number}', which is open, was "
        f"reserved at {reserved_at.isoformat(timespec='seconds')}: set the clocks of the hosts right; if that moment "
        "is the wrong one, nothing is bought until the attempt has ended"
    )
