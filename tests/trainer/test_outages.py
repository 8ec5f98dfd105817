"""A real store that goes away in mid-training."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spillway.testing.s3_server import S3Server
from spillway.testing.training import TrainingSite, finish, read_until
from spillway.trainer.outage import Outage
from spillway.trainer.stop import StopSignal

ENDLESS = {"SPILLWAY_STEPS": "1000000", "SPILLWAY_STEP_SECONDS": "0.02"}


def committed(facts: Mapping[str, Any]) -> bool:
    return bool(facts["event"] == "committed")


def commit_failed(facts: Mapping[str, Any]) -> bool:
    return bool(facts["event"] == "commit-failed")


def test_a_store_that_comes_back_costs_no_step(own_s3_server: S3Server, own_s3_site: TrainingSite) -> None:
    with own_s3_site.training(**ENDLESS, SPILLWAY_STORE_PATIENCE_SECONDS="3600") as process:
        read_until(process, committed)
        own_s3_server.kill()
        failed = read_until(process, commit_failed)
        own_s3_server.start()
        made_up = read_until(process, committed)
        process.terminate()
        ended = finish(process, seen=[*failed, *made_up])
    assert ended.exit_code == 75
    durable = own_s3_site.checkpoints.resume_point().step
    assert durable == ended.named("preempted")[0]["step"] > ended.named("commit-failed")[0]["step"]
    assert [step for step, _ in own_s3_site.losses()] == list(range(1, durable + 1))


def test_a_store_that_stays_away_is_the_platforms_fault_and_not_the_programs(
    own_s3_server: S3Server, own_s3_site: TrainingSite
) -> None:
    with own_s3_site.training(**ENDLESS, SPILLWAY_STORE_PATIENCE_SECONDS="1") as process:
        seen = read_until(process, committed)
        own_s3_server.kill()
        ended = finish(process, seen=seen)
    assert ended.exit_code == 74
    durable = [facts["step"] for facts in ended.named("committed")][-1]
    assert f"s, the last durable step is {durable}: s3://" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_store_may_be_silent_for_thousands_of_tries() -> None:
    outage = Outage(StopSignal(), patience=timedelta(days=1), grace=timedelta(seconds=30))
    for _ in range(5000):
        outage.failed()
    assert (outage.try_due, outage.hopeless) == (False, False)
