"""The values that flow between observing, deciding and applying.

All are frozen and keyword-only; moments are aware UTC datetimes, durations timedeltas, money is Decimal, and the unit
is in the name. Configuration is validated into these same classes (``config``), XCom carries them through ``codec``.
"""

from spillway.model.attempts import (
    Attempt,
    AttemptState,
    CostEntry,
    Outcome,
)
from spillway.model.decisions import (
    Candidate,
    PlacementDecision,
    PlacementVerdict,
    Rejection,
)
from spillway.model.declared import (
    Billing,
    Cluster,
    Dataset,
    JobSpec,
    Link,
    NodePool,
    PlacementPolicy,
    Priority,
    QuotaShare,
    RegistryRef,
    RunPolicy,
    SiteKind,
    StoreRef,
    Tier,
)
from spillway.model.observed import (
    ClusterState,
    CoolDown,
    NodeState,
    PodPhase,
    PodState,
    PodUse,
    Reservation,
    Snapshot,
)
from spillway.model.stored import (
    CheckpointManifest,
    CheckpointPart,
    ObjectInfo,
)

__all__ = [
    "Attempt",
    "AttemptState",
    "Billing",
    "Candidate",
    "CheckpointManifest",
    "CheckpointPart",
    "Cluster",
    "ClusterState",
    "CoolDown",
    "CostEntry",
    "Dataset",
    "JobSpec",
    "Link",
    "NodePool",
    "NodeState",
    "ObjectInfo",
    "Outcome",
    "PlacementDecision",
    "PlacementPolicy",
    "PlacementVerdict",
    "PodPhase",
    "PodState",
    "PodUse",
    "Priority",
    "QuotaShare",
    "RegistryRef",
    "Rejection",
    "Reservation",
    "RunPolicy",
    "SiteKind",
    "Snapshot",
    "StoreRef",
    "Tier",
]
