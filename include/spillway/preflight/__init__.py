"""What stands between the declared clusters and a first run, each gap with what to do about it.

Asking leaves nothing behind: the object written to try the store is deleted again, the upload to a registry given up.
"""

from spillway.preflight.gaps import Gap, gap_table, merged
from spillway.preflight.sites import PROBE_PREFIX, RealCluster, SiteAccess, preflight, remedy

__all__ = ["PROBE_PREFIX", "Gap", "RealCluster", "SiteAccess", "gap_table", "merged", "preflight", "remedy"]
