"""Which objects belong to a data set of an attempt, each in which version."""

from __future__ import annotations

from spillway.errors import BadData
from spillway.stores.base import ObjectStore, list_data
from spillway.stores.entries import read_copy
from spillway.trainer.contract import DatasetAccess


def object_versions(data: ObjectStore, access: DatasetAccess) -> dict[str, str]:
    """The etag of each of its objects: by its record those of the verified copy or part, else all that are there.

    A copy may lie among objects that its home no longer has, a part among objects that are not of it.

    Raises:
        Missing: there is no such record.
        BadData: it is none, or not whole.
    """
    if access.record is None:
        scope = access.scope
        return {info.key: info.etag for info in list_data(data, scope.prefix) if scope.holds(info.key)}
    try:
        return {key: synced.destination_etag for key, synced in read_copy(data, access.record)}
    except ValueError as problem:
        where = f"{data.name}/{access.record}"
        raise BadData(where, f"{problem}; sync the data set to this site again") from problem
