"""Which nodes of a pool the pods of a job best go to, so that whole nodes stay free, or get free and leave."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.model import Attempt, ClusterState, Reservation
from spillway.placement.capacity import ClusterUse, need_of


def fullest_nodes(attempt: Attempt, state: ClusterState, reservations: Iterable[Reservation]) -> tuple[str, ...]:
    """For each pod of the attempt the node with the fewest free GPUs that takes it; of equal ones the first by name.

    The scaler counts on the same: it packs what waits so before it orders nodes. What finds no room now has none.

    Args:
        reservations: those of all attempts, its own among them or not.
    """
    pod = need_of(attempt.job)
    if not pod.gpus:
        return ()
    free = dict(ClusterUse(state, reservations).capacity(attempt.candidate.pool, {attempt.label}).free)
    found = []
    for _ in range(attempt.job.nodes):
        able = [name for name, room in free.items() if room.times(pod)]
        if not able:
            break
        name = min(able, key=lambda node: (free[node].gpus, node))
        free[name] = free[name].less(*pod)
        found.append(name)
    return tuple(dict.fromkeys(found))
