"""What the official client needs of the API: objects, failures, patches, selectors, watches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client, watch

from spillway.testing.kube_space import Space, eventually


def _failure(call: Callable[[], Any]) -> tuple[int, str]:
    """HTTP status and machine-readable reason of a call that must fail."""
    with pytest.raises(client.ApiException) as refused:
        call()
    return refused.value.status, json.loads(refused.value.body)["reason"]


def _names(listed: Any) -> list[str]:
    return sorted(item.metadata.name for item in listed.items)


class TestDiscovery:
    def test_version_groups_and_resources_are_told(self, space: Space) -> None:
        api = space.api_client

        assert client.VersionApi(api).get_code().major == "1"
        assert "v1" in client.CoreApi(api).get_api_versions().versions
        groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
        assert {"batch", "coordination.k8s.io"} <= groups

    def test_the_dynamic_client_finds_kinds(self, space: Space) -> None:
        from kubernetes.dynamic import DynamicClient

        resources = DynamicClient(space.api_client).resources

        assert [
            (resource.name, resource.namespaced)
            for resource in (
                resources.get(api_version="v1", kind="Pod"),
                resources.get(api_version="v1", kind="Node"),
                resources.get(api_version="batch/v1", kind="Job"),
            )
        ] == [("pods", True), ("nodes", False), ("jobs", True)]


class TestObjects:
    def test_a_created_object_has_an_identity_and_a_version(self, space: Space) -> None:
        made = space.core.create_namespaced_config_map(space.name, {"metadata": {"generateName": "made-"}})

        metadata = made.metadata
        assert metadata.name.startswith("made-")
        assert len(metadata.name) > len("made-")
        assert metadata.namespace == space.name
        assert metadata.uid
        assert metadata.creation_timestamp
        assert metadata.resource_version

    def test_a_new_namespace_is_active(self, space: Space) -> None:
        assert space.core.read_namespace(space.name).status.phase == "Active"

    def test_failures_are_told_in_the_words_that_clients_look_for(self, space: Space) -> None:
        core, name = space.core, space.name
        body = {"metadata": {"name": "failing"}, "data": {"a": "1"}}
        stale = core.create_namespaced_config_map(name, body)
        core.patch_namespaced_config_map("failing", name, {"data": {"a": "2"}})
        other_uid = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))

        assert _failure(lambda: core.read_namespaced_pod("none", name)) == (404, "NotFound")
        assert _failure(lambda: core.create_namespaced_config_map(name, body)) == (409, "AlreadyExists")
        assert _failure(lambda: core.replace_namespaced_config_map("failing", name, stale)) == (409, "Conflict")
        assert _failure(lambda: core.delete_namespaced_config_map("failing", name, body=other_uid)) == (409, "Conflict")
        assert _failure(lambda: core.create_namespaced_pod(name, space.pod("Bad_Name", "x"))) == (422, "Invalid")
        empty = {"metadata": {"name": "empty"}, "spec": {"containers": []}}
        assert _failure(lambda: core.create_namespaced_pod(name, empty)) == (422, "Invalid")
        missing = f"{name}-none"
        assert _failure(lambda: core.create_namespaced_config_map(missing, body)) == (404, "NotFound")

    def test_a_call_without_a_valid_token_is_unauthorized(self, space: Space) -> None:
        given = space.api_client.configuration
        for headers in ({}, {"authorization": "Bearer wrong"}):
            stranger = client.Configuration(host=given.host)
            stranger.ssl_ca_cert, stranger.api_key = given.ssl_ca_cert, headers
            with client.ApiClient(stranger) as other:
                assert _failure(client.CoreV1Api(other).list_node)[0] == 401

    def test_the_two_patches(self, space: Space) -> None:
        core, name = space.core, space.name
        body = space.pod("patched", "true", spec={"nodeSelector": {"none": "such"}})
        space.create(body)

        merged = space.api_client.call_api(
            f"/api/v1/namespaces/{name}/pods/patched",
            "PATCH",
            body={"metadata": {"labels": {"app": None, "a": "1"}}},
            header_params={"Content-Type": "application/merge-patch+json"},
            response_types_map={200: "V1Pod"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
        )
        strategic = core.patch_namespaced_pod("patched", name, {"metadata": {"labels": {"b": "2"}}})

        assert merged.metadata.labels == {"a": "1"}
        assert strategic.metadata.labels == {"a": "1", "b": "2"}

    def test_conditions_are_merged_by_type_and_status_is_apart_from_the_rest(self, space: Space) -> None:
        core, name = space.core, space.name
        space.create(space.pod("apart", "true", spec={"nodeSelector": {"none": "such"}}))
        for kind in ("spillway.dev/A", "spillway.dev/B"):
            condition = {"type": kind, "status": "True"}
            core.patch_namespaced_pod_status("apart", name, {"status": {"conditions": [condition]}})

        seen = core.read_namespaced_pod("apart", name)
        assert {"spillway.dev/A", "spillway.dev/B"} <= {c.type for c in seen.status.conditions}

        core.patch_namespaced_pod("apart", name, {"status": {"message": "ignored"}})
        assert core.read_namespaced_pod("apart", name).status.message is None

    def test_a_pods_spec_does_not_change(self, space: Space) -> None:
        space.create(space.pod("fixed", "true", spec={"nodeSelector": {"none": "such"}}))
        change = {"spec": {"restartPolicy": "Always"}}

        assert _failure(lambda: space.core.patch_namespaced_pod("fixed", space.name, change)) == (422, "Invalid")

    def test_a_secrets_plain_texts_are_stored_encoded(self, space: Space) -> None:
        space.core.create_namespaced_secret(space.name, {"metadata": {"name": "plain"}, "stringData": {"p": "w"}})

        assert space.core.read_namespaced_secret("plain", space.name).data == {"p": "dw=="}

    def test_a_dry_run_stores_nothing(self, space: Space) -> None:
        space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "dry"}}, dry_run="All")

        assert _failure(lambda: space.core.read_namespaced_config_map("dry", space.name)) == (404, "NotFound")

    def test_what_an_object_owns_goes_with_it(self, space: Space) -> None:
        core, name = space.core, space.name
        owner = core.create_namespaced_config_map(name, {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
        core.create_namespaced_config_map(name, {"metadata": {"name": "owned", "ownerReferences": [reference]}})

        core.delete_namespaced_config_map("owner", name)

        eventually(lambda: "owned" not in _names(core.list_namespaced_config_map(name)))

    def test_a_lease_is_made_and_renewed(self, space: Space) -> None:
        leases = client.CoordinationV1Api(space.api_client)
        body = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5}}
        lease = leases.create_namespaced_lease(space.name, body)
        lease.spec.holder_identity = "b"

        assert leases.replace_namespaced_lease("lease", space.name, lease).spec.holder_identity == "b"

    def test_a_service_is_made_and_read(self, space: Space) -> None:
        body = {"metadata": {"name": "service"}, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}
        space.core.create_namespaced_service(space.name, body)

        assert space.core.read_namespaced_service("service", space.name).spec.ports[0].port == 80

    def test_a_deleted_namespace_takes_everything_with_it(self, space: Space) -> None:
        core, name = space.core, f"{space.name}-gone"
        core.create_namespace({"metadata": {"name": name}})
        core.create_namespaced_config_map(name, {"metadata": {"name": "inside"}})

        core.delete_namespace(name)

        eventually(lambda: name not in _names(core.list_namespace()))


class TestSelection:
    def test_label_selectors(self, space: Space) -> None:
        for name, first, second in (("l1", "x", "1"), ("l2", "y", "1"), ("l3", "x", "2")):
            labels = {"k": first, "n": second}
            space.core.create_namespaced_config_map(space.name, {"metadata": {"name": name, "labels": labels}})

        def listed(selector: str) -> list[str]:
            return _names(space.core.list_namespaced_config_map(space.name, label_selector=selector))

        assert {selector: listed(selector) for selector in ("k=x", "k,n!=2", "k=x,n==2", "k,!missing")} == {
            "k=x": ["l1", "l3"],
            "k,n!=2": ["l1", "l2"],
            "k=x,n==2": ["l3"],
            "k,!missing": ["l1", "l2", "l3"],
        }

    def test_field_selectors(self, space: Space) -> None:
        space.create(space.pod("field", "true", spec={"nodeSelector": {"none": "such"}}))

        def found(selector: str) -> bool:
            return "field" in _names(space.core.list_namespaced_pod(space.name, field_selector=selector))

        answers = {
            selector: found(selector)
            for selector in (
                "metadata.name=field",
                "spec.nodeName=",
                "spec.nodeName=other",
                f"status.phase=Pending,metadata.namespace={space.name}",
                "status.phase!=Pending",
            )
        }
        assert list(answers.values()) == [True, True, False, True, False], answers

    def test_events_are_found_by_the_object_that_they_are_about(self, space: Space) -> None:
        about = {"kind": "Pod", "name": "someone", "namespace": space.name}
        body = {"metadata": {"name": "event"}, "involvedObject": about, "reason": "Test", "type": "Normal"}
        space.core.create_namespaced_event(space.name, body)

        def events(name: str) -> list[str]:
            selector = f"involvedObject.name={name}"
            return _names(space.core.list_namespaced_event(space.name, field_selector=selector))

        assert (events("someone"), events("nobody")) == (["event"], [])


class TestWatches:
    def test_a_watch_from_a_version_tells_every_later_change_once(self, space: Space) -> None:
        core, name = space.core, space.name
        version = core.list_namespaced_config_map(name).metadata.resource_version
        core.create_namespaced_config_map(name, {"metadata": {"name": "watched"}})
        core.patch_namespaced_config_map("watched", name, {"data": {"a": "1"}})
        core.delete_namespaced_config_map("watched", name)

        stream = watch.Watch().stream(
            core.list_namespaced_config_map, name, resource_version=version, timeout_seconds=2
        )

        assert [(event["type"], event["object"].metadata.name) for event in stream] == [
            ("ADDED", "watched"),
            ("MODIFIED", "watched"),
            ("DELETED", "watched"),
        ]

    def test_a_watch_begins_with_what_is_there_and_ends_in_time(self, space: Space) -> None:
        core, name = space.core, space.name
        core.create_namespaced_config_map(name, {"metadata": {"name": "there", "labels": {"watch": "me"}}})

        stream = watch.Watch().stream(
            core.list_namespaced_config_map, name, label_selector="watch=me", timeout_seconds=1
        )

        assert [(event["type"], event["object"].metadata.name) for event in stream] == [("ADDED", "there")]

    def test_an_object_that_leaves_the_selection_is_deleted_for_the_watcher(self, space: Space) -> None:
        core, name = space.core, space.name
        made = core.create_namespaced_config_map(name, {"metadata": {"name": "leaves", "labels": {"in": "1"}}})
        core.patch_namespaced_config_map("leaves", name, {"metadata": {"labels": {"in": None}}})

        stream = watch.Watch().stream(
            core.list_namespaced_config_map,
            name,
            label_selector="in=1",
            resource_version=made.metadata.resource_version,
            timeout_seconds=1,
        )

        assert [(event["type"], event["object"].metadata.name) for event in stream] == [("DELETED", "leaves")]
