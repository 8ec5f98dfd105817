"""How many GPUs a department may use: shares of the declared maximum of each kind of site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from spillway.model import Cluster, QuotaShare, Reservation, SiteKind

_NONE = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentGpus:
    """Whole GPUs of one kind of site: each department's own, and the rest that all of them share."""

    own: Mapping[str, int]
    rest: int

    def available(self, department: str, used: Mapping[str, Decimal], *, borrowing: bool = False) -> Decimal:
        """How many more GPUs, to the exact part of one, the department may take while others use that many.

        The rest pool shrinks by what each department uses beyond its own. A department without a share has nothing,
        not even of the rest. What others borrow of its own GPUs takes nothing from what it may have.

        Args:
            borrowing: whether it may also take what others leave of their own.
        """
        if department not in self.own:
            return _NONE
        if borrowing:
            taken = sum((used.get(name, _NONE) for name in self.own), _NONE)
            return max(_NONE, Decimal(self.most(department, borrowing=True)) - taken)
        others = (more for other, more in self.beyond(used).items() if other != department)
        beyond = min(sum(others, _NONE), Decimal(self.rest))
        return max(_NONE, self.most(department) - beyond - used.get(department, _NONE))

    def beyond(self, used: Mapping[str, Decimal]) -> Mapping[str, Decimal]:
        """What each department uses beyond its own."""
        return {name: max(_NONE, used.get(name, _NONE) - gpus) for name, gpus in self.own.items()}

    def lent(self, used: Mapping[str, Decimal]) -> Decimal:
        """How many GPUs of what is departments' own others use: all that is used beyond it and is not of the rest."""
        return max(_NONE, sum(self.beyond(used).values(), _NONE) - self.rest)

    def most(self, department: str, *, borrowing: bool = False) -> int:
        """How many GPUs the department may have while nobody uses any."""
        if department not in self.own:
            return 0
        return self.rest + (sum(self.own.values()) if borrowing else self.own[department])


def department_gpus(quotas: Mapping[str, QuotaShare], clusters: Iterable[Cluster], kind: SiteKind) -> DepartmentGpus:
    """The departments' GPUs: shares of the declared maximum of that kind of site, rounded down to whole GPUs."""
    declared = sum(pool.max_gpus for cluster in clusters if cluster.kind is kind for pool in cluster.pools)
    own = {
        department: int((share.onprem if kind is SiteKind.ONPREM else share.cloud) * declared)
        for department, share in quotas.items()
    }
    return DepartmentGpus(own=own, rest=max(0, declared - sum(own.values())))


def gpus_in_use(
    reservations: Iterable[Reservation], clusters: Iterable[Cluster], kind: SiteKind
) -> Mapping[str, Decimal]:
    """GPUs reserved by department on that kind of site; a running attempt keeps its reservation until it is settled.

    Of an attempt and those that give way to it never both are used: what counts is the most of now and then.
    """
    held = _held(reservations, clusters, kind)
    open_now = {reservation.attempt for reservation in held}
    now = _by_department(reservation for reservation in held if open_now.isdisjoint(reservation.displaces))
    then = gpus_kept(held, clusters, kind)
    return {name: max(now.get(name, _NONE), then.get(name, _NONE)) for name in {**now, **then}}


def gpus_kept(
    reservations: Iterable[Reservation], clusters: Iterable[Cluster], kind: SiteKind
) -> Mapping[str, Decimal]:
    """GPUs reserved by department there once all have ended that give way to another attempt."""
    held = _held(reservations, clusters, kind)
    leaving = {label for reservation in held for label in reservation.displaces}
    return _by_department(reservation for reservation in held if reservation.attempt not in leaving)


def _held(reservations: Iterable[Reservation], clusters: Iterable[Cluster], kind: SiteKind) -> tuple[Reservation, ...]:
    names = {cluster.name for cluster in clusters if cluster.kind is kind}
    return tuple(reservation for reservation in reservations if reservation.cluster in names)


def _by_department(reservations: Iterable[Reservation]) -> Mapping[str, Decimal]:
    used: dict[str, Decimal] = {}
    for reservation in reservations:
        used[reservation.department] = used.get(reservation.department, _NONE) + reservation.gpus
    return used
