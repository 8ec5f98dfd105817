"""What a token may do: everything, or only look, where its user is ``viewer``."""

from __future__ import annotations

from spillway.sandbox.kube.resources import Object
from spillway.sandbox.kube.status import ApiError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VIEWER = "viewer"
_LOOKING = frozenset({"get", "list", "watch"})


def check(user: str, method: str) -> None:
    """Raises ApiError 403 where the user may not send such a request."""
    if user == VIEWER and method != "GET":
        raise ApiError(403, "Forbidden", f'User "{user}" may only look')


def review(user: str, asked: Object) -> Object:
    """The answer to a SelfSubjectAccessReview."""
    verb = asked["spec"]["resourceAttributes"]["verb"]
    return {**asked, "status": {"allowed": user != VIEWER or verb in _LOOKING}}
