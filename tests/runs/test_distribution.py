"""What belongs at which site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillway.model import JobSpec, Tier
from spillway.runs.distribution import Route, dataset_routes, image_routes
from spillway.runs.services import Services
from spillway.testing.builders import image_use

MakeJob = Callable[..., JobSpec]


def test_routes_lead_to_every_other_site_that_may_hold_the_tier(services: Services, make_job: MakeJob) -> None:
    public = make_job(image="train:public")
    core = make_job(image="train:core", tier=Tier.CORE)
    apart = replace(services, image_uses=lambda: [image_use(public), image_use(core)])
    assert image_routes(apart) == (Route(name="train:public", site="cloud", tier=Tier.PUBLIC),)
    assert (
        image_routes(
            replace(services, image_uses=lambda: [image_use(replace(core, image="train:public")), image_use(public)])
        )
        == ()
    )
    assert dataset_routes(services) == (Route(name="digits", site="cloud", tier=Tier.PUBLIC),)
