# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the toolkit's repository; read by the real programs in tests/integration/hosts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages._sources import dearmored
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._repository import (
    Repository,
    old_lists,
    source,
)

RAW = b"\x99\x01\x0d\x04" + bytes(range(200))
KEY = (
    "-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: of the mirror\n\n"
    + base64.encodebytes(RAW).decode()
    + "=aBcD\n-----END PGP PUBLIC KEY BLOCK-----\n"
)
URL = "https://mirror.example.com/toolkit/"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(Root(str(tmp_path)))


def made(files: Files, manager: str, **options: Any) -> dict[str, str]:
    found, findings = source(Repository(**dict({"url": URL, "key": KEY}, **options)), manager, files, ())
    assert findings == []
    assert found is not None
    return {path: text for path, text in found.files().items() if text is not None}


@pytest.mark.rows("H062")
def test_apt_gets_a_flat_list_and_a_key_in_bytes(files: Files) -> None:
    keyring = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
    found = made(files, "apt")
    assert found[keyring].encode("utf-8", "surrogateescape") == RAW
    assert found["/etc/apt/sources.list.d/nvidia-container-toolkit.list"] == (
        f"deb [signed-by={keyring}] https://mirror.example.com/toolkit/stable/deb/$(ARCH) /\n"
    )


@pytest.mark.rows("H062")
@pytest.mark.parametrize(("manager", "folder"), [("dnf", "/etc/yum.repos.d"), ("zypper", "/etc/zypp/repos.d")])
def test_rpm_gets_a_section_and_a_key_in_letters(files: Files, manager: str, folder: str) -> None:
    key = "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"
    found = made(files, manager)
    assert found[key] == KEY
    lines = found[f"{folder}/nvidia-container-toolkit.repo"].splitlines()
    assert lines[0] == "[nvidia-container-toolkit]"
    for line in (
        "baseurl=https://mirror.example.com/toolkit/stable/rpm/$basearch", f"gpgkey=file://{key}", "repo_gpgcheck=1",
        "gpgcheck=0",
    ):  # fmt: skip
        assert line in lines


def test_experimental_packages_are_a_repository_beside_the_stable_one(files: Files) -> None:
    lines = made(files, "apt", experimental=True)["/etc/apt/sources.list.d/nvidia-container-toolkit.list"].splitlines()
    assert [line.split("/toolkit/")[1] for line in lines] == ["stable/deb/$(ARCH) /", "experimental/deb/$(ARCH) /"]
    text = made(files, "dnf", experimental=True)["/etc/yum.repos.d/nvidia-container-toolkit.repo"]
    assert [line for line in text.splitlines() if line.startswith("[")] == [
        "[nvidia-container-toolkit]", "[nvidia-container-toolkit-experimental]",
    ]  # fmt: skip


def test_a_proxy_and_certificates_are_for_this_repository_alone(files: Files, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    way = {"proxy": "http://proxy.example.com:3128", "ca_file": "/ca.pem"}
    made_for_apt = made(files, "apt", **way)["/etc/apt/apt.conf.d/90gpufleet-nvidia-container-toolkit"]
    assert 'Proxy::mirror.example.com "http://proxy.example.com:3128";' in made_for_apt
    assert '::CaInfo "/ca.pem";' in made_for_apt
    section = made(files, "dnf", **way)["/etc/yum.repos.d/nvidia-container-toolkit.repo"]
    assert "proxy=http://proxy.example.com:3128\nsslcacert=/ca.pem\n" in section


def test_a_mirror_may_have_a_path_of_its_own(files: Files) -> None:
    found = made(files, "apt", path="debian/nvidia")
    assert "/toolkit/debian/nvidia /\n" in found["/etc/apt/sources.list.d/nvidia-container-toolkit.list"]


def test_the_key_may_be_a_file_of_the_host(files: Files, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(RAW)
    assert made(files, "apt", key="", key_file="/key")
    (tmp_path / "key").write_text(KEY)
    assert made(files, "dnf", key="", key_file="/key")


@pytest.mark.parametrize(
    ("options", "id", "words"),
    [
        ({"url": "ftp://mirror.example.com"}, "repository_url", "is no URL"),
        ({"url": "https://mirror.example.com/a b"}, "repository_url", "is no URL"),
        ({"url": "https://mirror.example.com/\n[evil]"}, "repository_url", "is no URL"),
        ({"url": "https://me:secret@mirror.example.com/"}, "repository_url", "has a user or a password in it"),
        ({"path": "a\nb"}, "repository_path", "is no path"),
        ({"key": ""}, "repository_key", "is not given"),
        ({"key": "hello"}, "repository_key", "is no public key"),
        ({"key": KEY.replace("PUBLIC", "PRIVATE")}, "repository_key", "is no public key"),
        ({"key": "", "key_file": "/none"}, "repository_key", "/none is not on this host"),
    ],
)
def test_what_is_no_repository_is_refused(files: Files, options: Any, id: str, words: str) -> None:
    found, findings = source(Repository(**dict({"url": URL, "key": KEY}, **options)), "apt", files, ())
    assert found is None
    assert [(one.id, one.severity) for one in findings] == [(id, "error")]
    assert words in findings[0].detail
    assert "secret" not in findings[0].detail


def test_a_repository_without_a_key_has_to_be_accepted(files: Files) -> None:
    accept = ("unsigned_repository",)
    found, findings = source(Repository(url=URL), "apt", files, accept)
    assert found is not None
    assert [one.severity for one in findings] == ["warning"]
    assert found.files() == {
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list": f"deb [trusted=yes] {URL}stable/deb/$(ARCH) /\n"
    }
    found, _findings = source(Repository(url=URL), "dnf", files, accept)
    assert found is not None
    assert "repo_gpgcheck=0\n" in found.text
    assert "gpgkey" not in found.text


def test_without_a_url_the_host_keeps_its_own_repositories(files: Files) -> None:
    assert source(Repository(), "apt", files, ()) == (None, [])


def test_letters_become_bytes_and_other_things_nothing() -> None:
    assert dearmored(KEY.encode()) == RAW
    assert dearmored(KEY.replace("\n", "\r\n").encode()) == RAW
    assert dearmored((KEY + KEY).encode()) == RAW + RAW
    assert dearmored(RAW) == RAW
    for wrong in (b"", b"hello", b"<html>", KEY.replace("mQEN", "m!EN").encode()):
        assert dearmored(wrong) is None


@pytest.mark.rows("H062")
def test_files_of_earlier_repositories_are_found(files: Files, tmp_path: Path) -> None:
    folder = tmp_path / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    for name in ("libnvidia-container.list", "nvidia-docker.sources", "debian.list", "cuda-debian12-x86_64.list"):
        (folder / name).touch()
    assert old_lists("apt", files) == [
        "/etc/apt/sources.list.d/libnvidia-container.list", "/etc/apt/sources.list.d/nvidia-docker.sources",
    ]  # fmt: skip
