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

    def change(self, before: int, free: int) -> None:
        """A node has so many free GPUs now; no more than any had."""
        self.counts[before] -= 1
        self.counts[free] += 1
        self.total += free - before

    def pods(self, gpus: int) -> int:
        """How many pods of so many GPUs fit."""
        pods = 0
        for free in range(gpus, len(self.counts)):
            if self.counts[free]:
                pods += self.counts[free] * (free // gpus)
        return pods

    def fits(self, gpus: int, pods: int) -> bool:
        if self.total < gpus * pods:
            return False
        for free in range(len(self.counts) - 1, gpus - 1, -1):  # whole nodes first: mostly they are enough
            if self.counts[free]:
                pods -= self.counts[free] * (free // gpus)
                if pods <= 0:
                    return True
        return pods <= 0

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
