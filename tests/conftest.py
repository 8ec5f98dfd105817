"""Fixtures of every area: real servers, started once a session and only when a test asks for them."""

pytest_plugins = [
    "spillway.testing.s3_server",
    "spillway.testing.registry_server",
    "spillway.testing.postgres_server",
    "spillway.testing.kube_server",
    "spillway.testing.sandbox_server",
]
