import json
from datetime import timedelta
from pathlib import Path

import pytest

from spillway.errors import ConfigError, UnknownName
from spillway.model import KeyScope
from spillway.stores.local import LocalStore
from spillway.stores.s3 import S3Store
from spillway.trainer.contract import Contract, DatasetAccess, StoreAccess, read_contract

ENVIRONMENT = {
    "SPILLWAY_RUN": "digits-1",
    "SPILLWAY_ATTEMPT": "2",
    "SPILLWAY_RESUME_MANIFEST": "digits-1/manifests/000000000040-000001.json",
    "SPILLWAY_RESUMED_FROM_STEP": "40",
    "SPILLWAY_STORE_ENDPOINT": "https://127.0.0.1:9000",
    "SPILLWAY_STORE_REGION": "us-east-1",
    "SPILLWAY_STORE_ACCESS_KEY": "AKDEMO",
    "SPILLWAY_STORE_SECRET_KEY": "very-secret",
    "SPILLWAY_CHECKPOINT_BUCKET": "checkpoints",
    "SPILLWAY_DATASET_BUCKET": "data",
    "SPILLWAY_DATASET_PREFIX": "digits/",
    "SPILLWAY_DATASET_INCLUDE": '["*.csv"]',
    "SPILLWAY_DATASET_EXCLUDE": '["tmp/*"]',
    "SPILLWAY_DATASET_RECORD": ".spillway/sync/digits.json",
    "SPILLWAY_GRACE_SECONDS": "12.5",
    "SPILLWAY_STORE_PATIENCE_SECONDS": "600",
    "SPILLWAY_STEPS": "60",
    "SPILLWAY_CHECKPOINT_EVERY": "10",
    "SPILLWAY_STEP_SECONDS": "0.25",
    "SPILLWAY_SEED": "7",
    "JOB_COMPLETION_INDEX": "1",
}
CACHE = {"BUCKET": "cache", "PREFIX": "0123456789abcdef/", "KEY": "00" * 32, "BYTES": "100"}
CONTRACT = Contract(
    run="digits-1",
    attempt=2,
    resume_manifest="digits-1/manifests/000000000040-000001.json",
    resumed_from_step=40,
    store=StoreAccess(
        endpoint="https://127.0.0.1:9000", region="us-east-1", access_key="AKDEMO", secret_key="very-secret"
    ),
    checkpoint_bucket="checkpoints",
    dataset_bucket="data",
    dataset=DatasetAccess(
        scope=KeyScope(prefix="digits/", include=("*.csv",), exclude=("tmp/*",)), record=".spillway/sync/digits.json"
    ),
    grace=timedelta(seconds=12.5),
    store_patience=timedelta(minutes=10),
    total_steps=60,
    checkpoint_every=10,
    step_pause=timedelta(seconds=0.25),
    seed=7,
    rank=1,
)


def test_the_environment_is_the_contract() -> None:
    contract = read_contract(ENVIRONMENT)
    assert contract == CONTRACT
    assert contract.first_step == 41


def test_under_torchrun_a_rank_is_that_of_the_process_and_a_variable_of_that_name_alone_means_nothing() -> None:
    torchrun = {"RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}
    assert read_contract({**ENVIRONMENT, **torchrun}).rank == 8
    assert read_contract({**ENVIRONMENT, "RANK": "8"}).rank == 1


def test_each_of_several_data_sets_is_found_by_its_name() -> None:
    told = [
        {"name": "digits", "prefix": "digits/", "include": ["*.csv"], "exclude": ["tmp/*"], "record": "r", "later": 1},
        {"name": "letters", "prefix": "public/letters/", "include": [], "exclude": [], "record": ""},
    ]
    contract = read_contract({**ENVIRONMENT, "SPILLWAY_DATASETS": json.dumps(told)})
    assert contract.dataset_of("letters") == DatasetAccess(scope=KeyScope(prefix="public/letters/"), record=None)
    assert contract.dataset_of(None) == contract.dataset
    with pytest.raises(UnknownName, match=r"unknown data set 'letter'; known: digits, letters"):
        contract.dataset_of("letter")
    for wrong in ("{", "[1]", '[{"name": "digits"}]', "7"):
        with pytest.raises(ConfigError, match="SPILLWAY_DATASETS: expected a JSON list of data sets"):
            read_contract({**ENVIRONMENT, "SPILLWAY_DATASETS": wrong})


def test_an_attempt_without_a_checkpoint_begins_with_step_one() -> None:
    fresh = {**ENVIRONMENT, "SPILLWAY_RESUME_MANIFEST": "", "SPILLWAY_RESUMED_FROM_STEP": ""}
    contract = read_contract(fresh)
    assert (contract.resume_manifest, contract.resumed_from_step, contract.first_step) == (None, None, 1)


def test_what_a_job_may_leave_out_has_these_values() -> None:
    data = ("SPILLWAY_DATASET_PREFIX", "SPILLWAY_DATASET_INCLUDE", "SPILLWAY_DATASET_EXCLUDE")
    optional = ("SPILLWAY_GRACE_SECONDS", "SPILLWAY_STEP_SECONDS", "SPILLWAY_SEED", "JOB_COMPLETION_INDEX", *data)
    contract = read_contract({name: value for name, value in ENVIRONMENT.items() if name not in optional})
    assert (contract.grace, contract.step_pause, contract.seed, contract.rank, contract.dataset) == (
        timedelta(seconds=30),
        timedelta(0),
        0,
        0,
        DatasetAccess(scope=KeyScope(prefix=""), record=".spillway/sync/digits.json"),
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        pytest.param("SPILLWAY_RUN", "", "expected a value, it is not set", id="no run"),
        pytest.param("SPILLWAY_ATTEMPT", "two", "expected an integer of at least 1, got 'two'", id="attempt as word"),
        pytest.param("SPILLWAY_ATTEMPT", "0", "expected an integer of at least 1, got '0'", id="attempt zero"),
        pytest.param("SPILLWAY_ATTEMPT", "", "expected an integer of at least 1, it is not set", id="no attempt"),
        pytest.param("SPILLWAY_RESUMED_FROM_STEP", "0", "expected an integer of at least 1, got '0'", id="step zero"),
        pytest.param("SPILLWAY_RESUME_MANIFEST", "", "expected both or neither", id="a step without its manifest"),
        pytest.param("SPILLWAY_STORE_ENDPOINT", "127.0.0.1:9000", "expected an http, https or file URL", id="no URL"),
        pytest.param("SPILLWAY_STORE_REGION", "", "expected a value, it is not set", id="no region"),
        pytest.param("SPILLWAY_STORE_ACCESS_KEY", "", "expected a value, it is not set", id="no access key"),
        pytest.param("SPILLWAY_STORE_SECRET_KEY", "", "expected a value, it is not set", id="no secret key"),
        pytest.param("SPILLWAY_STORE_CA_FILE", "/no/ca.pem", "there is none at '/no/ca.pem'", id="no certificate"),
        pytest.param("SPILLWAY_CHECKPOINT_BUCKET", "", "expected a value, it is not set", id="no checkpoint bucket"),
        pytest.param("SPILLWAY_DATASET_BUCKET", "", "expected a value, it is not set", id="no data bucket"),
        pytest.param("SPILLWAY_GRACE_SECONDS", "soon", "expected a number of seconds, got 'soon'", id="grace as word"),
        pytest.param("SPILLWAY_STEPS", "-5", "expected an integer of at least 1, got '-5'", id="negative steps"),
        pytest.param("SPILLWAY_CHECKPOINT_EVERY", "0", "expected an integer of at least 1, got '0'", id="never"),
        pytest.param("SPILLWAY_STEP_SECONDS", "-1", "expected a number of seconds, got '-1'", id="negative pause"),
        pytest.param("SPILLWAY_STEP_SECONDS", "nan", "expected a number of seconds, got 'nan'", id="no pause"),
        pytest.param("SPILLWAY_SEED", "1.5", "expected an integer of at least 0, got '1.5'", id="broken seed"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_contract({**ENVIRONMENT, name: value})
    assert (caught.value.file, caught.value.path) == ("environment", name)
    assert problem in caught.value.problem


def test_each_store_is_vouched_for_by_the_certificates_that_are_named_for_it(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.touch()
    cache = {name.replace("_STORE_", "_CACHE_"): value for name, value in ENVIRONMENT.items() if "_STORE_" in name}
    cache |= {f"SPILLWAY_CACHE_{name}": value for name, value in CACHE.items()}
    for what in ("STORE", "CACHE"):
        contract = read_contract(ENVIRONMENT | cache | {f"SPILLWAY_{what}_CA_FILE": str(file)})
        assert contract.cache is not None
        found = {"STORE": contract.store.ca_file, "CACHE": contract.cache.store.ca_file}
        assert found == {"STORE": None, "CACHE": None} | {what: file}


def test_the_secret_is_not_shown() -> None:
    assert "very-secret" not in repr(read_contract(ENVIRONMENT))


def test_an_endpoint_is_an_s3_server_or_a_folder(tmp_path: Path) -> None:
    server = CONTRACT.store.bucket("data")
    assert isinstance(server, S3Store)
    assert server.name == "s3://data@127.0.0.1:9000"
    place = tmp_path / "my däta 100%"
    folder = StoreAccess(endpoint=place.as_uri(), region="here", access_key="a", secret_key="b").bucket("data")
    assert isinstance(folder, LocalStore)
    assert folder.name == f"file://{place}/data"
