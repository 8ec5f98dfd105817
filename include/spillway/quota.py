"""How many GPUs a department may use: shares of the declared maximum of each kind of site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.model import Cluster, QuotaShare, Reservation, SiteKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentGpus:
    """Whole GPUs of one kind of site: each department's own, and the rest that all of them share."""

    own: Mapping[str, int]
    rest: int

    def available(self, department: str, used: Mapping[str, int], *, borrowing: bool = False) -> int:
        """How many more GPUs the department may take while others use that many.

        The rest pool shrinks by what each department uses beyond its own. A department without a share has nothing,
        not even of the rest. What others borrow of its own GPUs takes nothing from what it may have.

        Args:
            borrowing: whether it may also take what others leave of their own.
        """
        if department not in self.own:
            return 0
        if borrowing:
            return max(0, self.most(department, borrowing=True) - sum(used.get(name, 0) for name in self.own))
        beyond = sum(max(0, used.get(other, 0) - gpus) for other, gpus in self.own.items() if other != department)
        return max(0, self.most(department) - min(beyond, self.rest) - used.get(department, 0))

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


def gpus_in_use(reservations: Iterable[Reservation], clusters: Iterable[Cluster], kind: SiteKind) -> Mapping[str, int]:
    """GPUs reserved by department on that kind of site; a running attempt keeps its reservation until it is settled."""
    names = {cluster.name for cluster in clusters if cluster.kind is kind}
    used: dict[str, int] = {}
    for reservation in reservations:
        if reservation.cluster in names:
            used[reservation.department] = (
                used.get(reservation.department, 0) + reservation.gpus_per_node * reservation.nodes
            )
    return used
