"""How pods are packed onto nodes: the fullest node that takes them, so that whole nodes stay free, or get free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FreeNodes:
    """How many nodes have so many free GPUs, by their number."""

    __slots__ = ("counts", "total")

    def __init__(self, free: Iterable[int]) -> None:
        self.counts = [0]
        self.total = 0
        for gpus in free:
            self.add(gpus)

    def copy(self) -> FreeNodes:
        other = FreeNodes(())
        other.counts, other.total = list(self.counts), self.total
        return other

    def add(self, free: int, nodes: int = 1) -> None:
        """A node with so many free GPUs is there; with -1 it is there no more."""
        if free >= len(self.counts):
            self.counts += [0] * (free + 1 - len(self.counts))
        self.counts[free] += nodes
        self.total += free * nodes

    def pods(self, gpus: int) -> int:
        """How many pods of so many GPUs fit."""
        counts = self.counts
        return sum(counts[free] * (free // gpus) for free in range(gpus, len(counts)))

    def fits(self, gpus: int, pods: int) -> bool:
        return self.total >= gpus * pods and self.pods(gpus) >= pods

    def take(self, gpus: int, pods: int) -> Sequence[tuple[int, int]]:
        """Put the pods on the fullest nodes that take them: (free GPUs of the node before, pods on it) for each.

        They have to fit.
        """
        found = []
        free = gpus
        while pods:
            if not self.counts[free]:
                free += 1
                continue
            put = min(pods, free // gpus)
            self.add(free, -1)
            self.add(free - put * gpus)
            found.append((free, put))
            pods -= put
        return found
