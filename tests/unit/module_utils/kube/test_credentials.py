# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import copy
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _credentials
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._credentials import packaged, plain
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority

CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {"name": "one", "cluster": {"server": "https://one.test:1", "insecure-skip-tls-verify": True}},
        {"name": "two", "cluster": {"server": "https://two.test:2", "insecure-skip-tls-verify": True}},
    ],
    "users": [
        {"name": "token", "user": {"token": "abc"}},
        {"name": "password", "user": {"username": "u", "password": "p"}},
        {"name": "nobody", "user": {}},
        {"name": "exec", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}}},
    ],
    "contexts": [
        {"name": "a", "context": {"cluster": "one", "user": "token"}},
        {"name": "b", "context": {"cluster": "two", "user": "password"}},
        {"name": "c", "context": {"cluster": "two", "user": "nobody"}},
        {"name": "e", "context": {"cluster": "one", "user": "exec"}},
    ],
    "current-context": "a",
}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _credentials._PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("context", ["a", "b", "c", None])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"api_key": "other"},
        {"host": "https://other.test"},
        {"validate_certs": False},
        {"username": "x", "password": "y"},
    ],
)
def test_both_ways_give_the_same(context: str | None, more: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    for source in (str(file), CONFIG):
        options = {"kubeconfig": copy.deepcopy(source), "context": context, **more}
        ours, theirs = plain(options), packaged(options)
        assert ours is not None
        assert (ours.server, ours.auth()) == (theirs.server, theirs.auth())


def changed(kind: str, **entries: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config[kind + "s"][0][kind].update(entries)
    return config


@pytest.mark.parametrize(
    "options",
    [
        {"kubeconfig": CONFIG, "context": "e"},
        {"kubeconfig": CONFIG, "context": "no-such-context"},
        {"kubeconfig": changed("cluster", **{"proxy-url": "http://proxy.test"})},
        {"kubeconfig": changed("user", tokenFile="/token")},
        {"kubeconfig": changed("user", **{"as": "somebody"})},
        {"kubeconfig": "/no/such/file"},
        {"kubeconfig": CONFIG, "proxy": "http://proxy.test"},
    ],
)
def test_what_is_not_plain_is_left_to_the_package(options: dict[str, Any]) -> None:
    assert plain(options) is None


def test_a_proxy_of_the_environment_is_left_to_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test")
    assert plain({"kubeconfig": CONFIG}) is None


def test_plain_credentials_do_not_import_the_package() -> None:
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        f"from {_credentials.__name__} import credentials\n"
        "print(credentials({'host': 'https://one.test', 'api_key': 'k'}).auth())"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "Bearer k"


def test_certificates_come_from_files_beside_the_kubeconfig_or_from_its_text(tmp_path: Path) -> None:
    Authority(tmp_path / "pki").issue("someone", "someone", ())
    files = {"client-certificate": "pki/someone.crt", "client-key": "pki/someone.key"}
    texts = {name + "-data": base64.b64encode((tmp_path / file).read_bytes()).decode() for name, file in files.items()}
    ca_text = base64.b64encode((tmp_path / "pki" / "ca.crt").read_bytes()).decode()
    for cluster, user in (
        ({"certificate-authority": "pki/ca.crt"}, files),
        ({"certificate-authority-data": ca_text}, texts),
    ):
        config = copy.deepcopy(CONFIG)
        config["clusters"][0]["cluster"] = {"server": "https://one.test", **cluster}
        config["users"][0]["user"] = user
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        found = plain({"kubeconfig": str(tmp_path / "config")})
        assert found is not None
        context: ssl.SSLContext = found.pool.connection_pool_kw["ssl_context"]
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
        assert found.auth() is None


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("nonsense")
    with pytest.raises(KubeError, match="certificate or key"):
        plain({"host": "https://one.test", "ca_cert": str(tmp_path / "ca")})


def test_a_pods_token_is_read_again_when_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(_credentials, "_POD", str(tmp_path))
    (tmp_path / "token").write_text("first\n")
    Authority(tmp_path)
    found = plain({})
    assert found is not None
    assert (found.server, found.auth()) == ("https://[fd00::1]:443", "Bearer first")
    (tmp_path / "token").write_text("second")
    assert found.auth() == "Bearer first"
    monkeypatch.setattr(_credentials, "_TOKEN_AGE", -1.0)
    assert found.auth() == "Bearer second"


def test_a_certificate_of_the_options_wins_over_the_text_in_the_kubeconfig(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    config = copy.deepcopy(CONFIG)
    text = base64.b64encode(first.certificate.read_bytes()).decode()
    config["clusters"][0]["cluster"] = {"server": "https://one.test", "certificate-authority-data": text}
    serials = []
    for options in ({}, {"ca_cert": str(second.certificate)}):
        found = plain({"kubeconfig": config, **options})
        assert found is not None
        [trusted] = found.pool.connection_pool_kw["ssl_context"].get_ca_certs()
        serials.append(trusted["serialNumber"])
    assert serials[0] != serials[1]
