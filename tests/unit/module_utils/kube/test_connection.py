# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import urllib3

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import (
    APPLY,
    JSON_PATCH,
    ApiError,
    Connection,
    Deadline,
    Dropped,
    KubeError,
    MissingPackage,
    Unreachable,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._lists import METADATA, PAGE, list_objects
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._pool import PoolTransport
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect, failure

PODS = "/api/v1/namespaces/n/pods"
SECRET = "secret-token-that-nobody-may-see"


@pytest.mark.parametrize(
    ("method", "content_type"), [("GET", "application/json"), ("DELETE", "application/json"), ("PATCH", APPLY)]
)
@pytest.mark.parametrize(
    "trouble",
    [FakeReply(500, failure(500)), FakeReply(503, b"gateway"), Dropped("reset"), FakeReply(broken=Dropped("cut"))],
)
def test_what_may_be_done_twice_is_tried_again(method: str, content_type: str, trouble: Any) -> None:
    connection, transport, pauses = connect(FakeReply(200, {}), trouble, trouble, FakeReply(200, {"done": True}))
    connection.get("/version")
    answer = connection.request(method, PODS, body={} if method == "PATCH" else None, content_type=content_type)
    assert answer.body == {"done": True}
    assert len(transport.sent) == 4
    assert pauses[0] < 0.3 < pauses[1] * 2, "waits grow"
    assert connection.stats["retries"] == 2


@pytest.mark.parametrize("trouble", [FakeReply(500, failure(500)), Dropped("reset")])
def test_what_may_not_be_done_twice_is_not(trouble: Any) -> None:
    connection, transport, _pauses = connect(FakeReply(200, {}), trouble, FakeReply(200, {}))
    connection.get("/version")
    with pytest.raises((ApiError, Unreachable)):
        connection.request("PATCH", PODS, body=[], content_type=JSON_PATCH)
    assert len(transport.sent) == 2


def test_a_request_that_was_never_sent_is_tried_again_whatever_it_is() -> None:
    connection, transport, _pauses = connect(Dropped("refused", sent=False), FakeReply(201, {}))
    assert connection.request("POST", PODS, body={}).status == 201
    assert len(transport.sent) == 2


@pytest.mark.rows("S45")
def test_an_answer_that_ends_in_the_middle_is_asked_for_again() -> None:
    half = FakeReply(200, b'{"items": [{"metadata"')
    connection, transport, _pauses = connect(half, half, FakeReply(200, {"done": True}))
    assert connection.get(PODS) == {"done": True}
    assert len(transport.sent) == 3


@pytest.mark.parametrize(("status", "tries"), [(500, 6), (503, 30)])
def test_a_server_that_restarts_is_waited_for_longer_than_one_that_fails(status: int, tries: int) -> None:
    connection, transport, _pauses = connect(*[FakeReply(status, failure(status))] * 29, FakeReply(200, {}))
    with contextlib.suppress(ApiError):
        connection.get(PODS)
    assert len(transport.sent) == tries


@pytest.mark.parametrize("kind", ["silent", "dripping"])
def test_an_answer_that_does_not_end_is_given_up(kind: str) -> None:
    """On a real socket: neither silence nor drips keep a request beyond its limits."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _address = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while kind == "dripping" and not over.wait(0.05):
                    client.sendall(b" ")
                over.wait(10)

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            with pytest.raises(Dropped, match="timed out" if kind == "silent" else r"did not end within 0\.8 s"):
                PoolTransport(urllib3.PoolManager()).send("GET", url, {}, None, 0.2).read()
            assert time.monotonic() - began < 5
        finally:
            over.set()


def test_too_many_requests_are_waited_for_as_long_as_the_server_says() -> None:
    busy = FakeReply(429, failure(429), {"Retry-After": ["3"]})
    connection, _transport, pauses = connect(busy, busy, FakeReply(201, {}))
    connection.request("POST", PODS, body={})
    assert all(3 <= pause <= 3.3 for pause in pauses)
    assert len(pauses) == 2


def test_nothing_is_tried_again_after_the_deadline() -> None:
    connection, transport, _pauses = connect(FakeReply(429, failure(429)))
    transport.script = [lambda _request: FakeReply(429, failure(429))]
    with pytest.raises(ApiError):
        connection.get(PODS, deadline=Deadline(0))
    assert len(transport.sent) == 1


def test_a_server_that_never_answers_is_given_up_soon_with_what_to_check() -> None:
    connection, transport, _pauses = connect(
        lambda _request: (_unused for _unused in ()).throw(Dropped("connection refused", sent=False))
    )
    with pytest.raises(
        Unreachable, match=r"cluster\.test:6443 does not answer: connection refused \(4 tries\).*Check the address"
    ):
        connection.get(PODS)
    assert len(transport.sent) == 4


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    connection, transport, _pauses = connect(Dropped("TLS: unknown authority", sent=False, final=True), FakeReply())
    with pytest.raises(Unreachable, match="certificate"):
        connection.get(PODS)
    assert len(transport.sent) == 1


def test_an_error_says_verb_path_message_and_hint() -> None:
    body = failure(403, "Forbidden", 'pods is forbidden: User "u" cannot list resource "pods" in API group ""')
    connection, _transport, _pauses = connect(FakeReply(403, body))
    with pytest.raises(ApiError) as caught:
        connection.get(PODS)
    assert str(caught.value).startswith(f"GET {PODS}: pods is forbidden")
    assert caught.value.forbidden_by_rights
    assert "lacks this right" in str(caught.value)


def test_a_refusal_by_admission_is_not_a_missing_right() -> None:
    error = ApiError(403, failure(403, "Forbidden", 'daemonsets "d" is forbidden: exceeded quota'), "PATCH", PODS)
    assert not error.forbidden_by_rights


def test_an_unknown_kind_is_told_from_a_missing_object() -> None:
    assert ApiError(404, failure(404, "NotFound", details={}), "GET", PODS).unknown_kind
    assert not ApiError(404, failure(404, "NotFound", details={"name": "x"}), "GET", PODS).unknown_kind


def test_find_gives_none_for_a_missing_object_only() -> None:
    connection, _transport, _pauses = connect(FakeReply(404, failure(404)), FakeReply(403, failure(403)))
    assert connection.find(PODS + "/x") is None
    with pytest.raises(ApiError):
        connection.find(PODS + "/x")


def test_an_answer_that_is_not_json_names_a_proxy_as_cause() -> None:
    connection, _transport, _pauses = connect(FakeReply(200, b"<html>log in</html>"))
    with pytest.raises(KubeError, match="proxy or login page"):
        connection.get(PODS)


def test_writes_dry_runs_and_reviews_are_counted_apart() -> None:
    connection, _transport, _pauses = connect(lambda _request: FakeReply())
    connection.get(PODS)
    connection.request("PATCH", PODS + "/x", body={}, content_type=APPLY)
    connection.request("PATCH", PODS + "/x", body={}, content_type=APPLY, query={"dryRun": "All"})
    connection.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body={})
    connection.request("POST", "/api/v1/namespaces/n/serviceaccounts/s/token", body={})
    assert {k: connection.stats[k] for k in ("requests", "writes", "dry_runs", "PATCH", "GET")} == {
        "requests": 5, "writes": 1, "dry_runs": 1, "PATCH": 2, "GET": 1,
    }  # fmt: skip


def test_warnings_of_the_server_are_kept_once() -> None:
    reply = FakeReply(200, {}, {"Warning": ['299 - "would violate \\"restricted\\""']})
    connection, _transport, _pauses = connect(reply, reply)
    connection.get(PODS)
    connection.get(PODS)
    assert connection.warnings == ['would violate "restricted"']


def test_credentials_are_asked_for_anew_in_each_request_and_never_shown() -> None:
    keys = iter([f"Bearer {SECRET}1", f"Bearer {SECRET}2"])
    connection, transport, _pauses = connect(
        FakeReply(), FakeReply(401, failure(401, "Unauthorized")), auth=lambda: next(keys)
    )
    connection.get(PODS)
    with pytest.raises(ApiError) as caught:
        connection.get(PODS)
    assert [sent.headers["Authorization"][-1] for sent in transport.sent] == ["1", "2"]
    assert SECRET not in str(caught.value)
    assert "credentials are not accepted" in str(caught.value)


# --- opening --------------------------------------------------------------------------------------------------------

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://one.test:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": SECRET}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


def test_a_kubeconfig_may_be_given_as_content() -> None:
    connection = Connection.open({"kubeconfig": KUBECONFIG, "validate_certs": True})
    assert connection.server == "https://one.test:1"
    assert connection._auth is not None
    assert connection._auth() == f"Bearer {SECRET}"


def test_single_options_win_over_the_kubeconfig() -> None:
    connection = Connection.open(
        {"kubeconfig": KUBECONFIG, "host": "https://two.test", "api_key": "other", "request_timeout": 7}
    )
    assert connection.server == "https://two.test"
    assert connection.timeout == 7
    assert connection._auth is not None
    assert connection._auth() == "Bearer other"


def test_user_and_password_are_sent_where_there_is_no_token() -> None:
    connection = Connection.open({"host": "https://two.test", "username": "u", "password": "p"})
    assert connection._auth is not None
    assert connection._auth() == "Basic dTpw"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kubeconfig": "/no/such/file"}, "the kubeconfig /no/such/file does not exist"),
        ({"kubeconfig": {"kind": "Config"}}, "cannot be used"),
        ({"kubeconfig": KUBECONFIG, "context": "none"}, "cannot be used"),
        ({}, "no cluster is given"),
        ({"kubeconfig": KUBECONFIG, "ca_cert": "/no/ca.pem", "client_cert": "/no/cert"}, ""),
    ],
)
def test_credentials_that_are_not_there_are_named(
    options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(KubeError) as caught:
        Connection.open(options).get("/version", deadline=Deadline(0.1))
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


def test_without_the_kubernetes_package_the_message_names_it() -> None:
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        f"from {_connection.__name__} import Connection, MissingPackage\n"
        "try: Connection.open({})\n"
        "except MissingPackage as error: print(error, '|', 'Traceback' in error.traceback)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == f"{MissingPackage('')} | True"
    assert "'kubernetes'" in out


# --- lists ----------------------------------------------------------------------------------------------------------


def page(names: list[str], token: str = "") -> FakeReply:
    meta = {"resourceVersion": "7", **({"continue": token} if token else {})}
    return FakeReply(200, {"metadata": meta, "items": [{"metadata": {"name": name}} for name in names]})


def test_a_list_is_read_in_pages() -> None:
    connection, transport, _pauses = connect(page(["a"], "next"), page(["b"]))
    listing = list_objects(connection, "Pod", "n", label_selector="x=y", metadata_only=True)
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert {(item["kind"], item["apiVersion"]) for item in listing.items} == {("Pod", "v1")}
    assert listing.resource_version == "7"
    assert f"limit={PAGE}&labelSelector=x%3Dy" in transport.sent[0].url
    assert "continue=next" in transport.sent[1].url
    assert transport.sent[0].headers["Accept"].startswith(METADATA)


def test_a_list_that_grew_too_old_between_pages_starts_again() -> None:
    connection, _transport, _pauses = connect(
        page(["a"], "next"), FakeReply(410, failure(410, "Expired")), page(["b", "c"])
    )
    assert [item["metadata"]["name"] for item in list_objects(connection, "Pod").items] == ["b", "c"]


def nodes_at(version: str, *names: str) -> FakeReply:
    return FakeReply(
        body={"metadata": {"resourceVersion": version}, "items": [{"metadata": {"name": name}} for name in names]}
    )


def test_a_list_older_than_one_that_came_before_is_asked_again() -> None:
    connection, transport, pauses = connect(
        nodes_at("90", "a"), nodes_at("8", "old"), nodes_at("8", "old"), nodes_at("91", "a", "b")
    )
    assert len(list_objects(connection, "Node").items) == 1
    listing = list_objects(connection, "Node")
    assert ([item["metadata"]["name"] for item in listing.items], listing.resource_version) == (["a", "b"], "91")
    assert (len(transport.sent), len(pauses)) == (4, 2)


def test_a_cluster_that_was_restored_has_older_lists_for_good_and_they_are_taken() -> None:
    connection, transport, _pauses = connect(nodes_at("90", "a"), *[nodes_at("8", "old")] * 5)
    list_objects(connection, "Node")
    assert list_objects(connection, "Node").items[0]["metadata"]["name"] == "old"
    assert len(transport.sent) == 5
    list_objects(connection, "Node")
    assert len(transport.sent) == 6


@pytest.mark.parametrize(("kind", "version"), [("Pod", "8"), ("Node", "90"), ("Node", ""), ("Node", "a")])
def test_lists_of_another_kind_or_without_an_order_are_not_older(kind: str, version: str) -> None:
    connection, transport, _pauses = connect(nodes_at("90", "a"), nodes_at(version, "b"))
    list_objects(connection, "Node")
    assert list_objects(connection, kind).items[0]["metadata"]["name"] == "b"
    assert len(transport.sent) == 2


def test_a_kind_that_is_not_served_is_an_error_unless_the_caller_allows_it() -> None:
    connection, _transport, _pauses = connect(lambda _request: FakeReply(404, failure(404, "NotFound")))
    assert not list_objects(connection, "ServiceMonitor", optional=True).served
    with pytest.raises(ApiError):
        list_objects(connection, "ServiceMonitor")


@pytest.mark.parametrize("minutes", [-10, 10])
def test_times_are_told_by_the_servers_clock(minutes: int) -> None:
    date = formatdate(time.time() + 60 * minutes, usegmt=True)
    connection, _transport, _pauses = connect(FakeReply(200, {}, {"Date": [date]}))
    assert connection.now() == pytest.approx(time.time(), abs=1)
    connection.get("/version")
    assert connection.now() == pytest.approx(time.time() + 60 * minutes, abs=2)


@pytest.mark.parametrize("date", ["", "yesterday", formatdate(0, usegmt=True)[:9]])
def test_clocks_that_agree_are_left_alone_and_a_date_that_is_none_is_passed_over(date: str) -> None:
    connection, _transport, _pauses = connect(
        FakeReply(200, {}, {"Date": [formatdate(usegmt=True)]}), FakeReply(200, {}, {"Date": [date]})
    )
    connection.get("/version")
    connection.get("/version")
    assert connection.ahead == 0.0
