"""What the environment says of the way to a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def environment_proxies(url: str) -> Mapping[str, str]:
    """The proxies between here and there by scheme, found as boto3 finds them; none where ``NO_PROXY`` has the host."""
    named = {name.lower() for name in os.environ if name.lower().endswith("_proxy")}
    if sys.platform == "linux" and not named - {"no_proxy"}:
        return {}
    # It takes a tenth of a second to load.
    from botocore.utils import get_environ_proxies

    return dict(get_environ_proxies(url))
