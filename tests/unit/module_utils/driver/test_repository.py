# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the driver's repository; read by the real programs in tests/integration/hosts."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._keys import without
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._repository import (
    Repository,
    directory,
    local_folders,
    source,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import System
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root

NOBLE = System("ubuntu", "24.04", ("debian",), "x86_64", family="apt")
ROCKY = System("rocky", "9.4", ("rhel", "centos", "fedora"), "x86_64", family="dnf")
LEAP = System("opensuse-leap", "15.6", ("suse", "opensuse"), "aarch64", family="zypper")
URL = "https://mirror.example.com/cuda/"
LISTS = "/etc/apt/sources.list.d"
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
PREFERENCE = "/etc/apt/preferences.d/cuda-repository-pin-600"


def packet(tag: int, body: bytes, *, new: bool = False) -> bytes:
    if not new:
        return bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body
    size = len(body)
    length = bytes([size]) if size < 192 else bytes([((size - 192) >> 8) + 192, (size - 192) & 0xFF])
    return bytes([0xC0 | tag]) + length + body


def key(number: int, *, new: bool = False) -> bytes:
    """A public key with a user id and a signature."""
    return packet(6, b"\x04\0\0\0\1\1" + bytes([number]) * 300, new=new) + packet(13, b"somebody") + packet(2, b"\x04s")


def id_of(number: int) -> str:
    body = b"\x04\0\0\0\1\1" + bytes([number]) * 300
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()


def letters(raw: bytes) -> str:
    text = base64.encodebytes(raw).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{text}=aBcD\n-----END PGP PUBLIC KEY BLOCK-----\n"


class Host:
    """Files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = Files(Root(str(folder)))

    def put(self, path: str, content: str | bytes) -> None:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def wants(self, system: System, **options: Any) -> dict[str, str | None]:
        retired = options.pop("retired", ("7FA2AF80",))
        found, findings = source(
            Repository(**dict({"url": URL, "key": letters(key(1))}, **options)), system, self.files, (), retired
        )
        assert findings == []
        assert found is not None
        return found.files()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("id", "version", "like", "arch", "found"),
    [
        ("ubuntu", "22.04", "debian", "x86_64", "ubuntu2204/x86_64"),
        ("ubuntu", "26.04", "debian", "aarch64", "ubuntu2604/sbsa"),
        ("ubuntu", "25.10", "debian", "x86_64", ""),
        ("debian", "13", "", "x86_64", "debian13/x86_64"),
        ("debian", "11", "", "x86_64", ""),
        ("rocky", "8.10", "rhel centos fedora", "x86_64", "rhel8/x86_64"),
        ("almalinux", "10.0", "rhel centos fedora", "aarch64", "rhel10/sbsa"),
        ("ol", "9.4", "fedora", "x86_64", "rhel9/x86_64"),
        ("rhel", "90", "fedora", "x86_64", ""),
        ("fedora", "43", "", "x86_64", "fedora43/x86_64"),
        ("amzn", "2023", "fedora", "aarch64", "amzn2023/sbsa"),
        ("azurelinux", "3.0", "", "x86_64", "azl3/x86_64"),
        ("sles", "15.7", "suse", "x86_64", "sles15/x86_64"),
        ("sles", "16.0", "suse", "x86_64", "suse16/x86_64"),
        ("opensuse-leap", "15.6", "suse opensuse", "x86_64", "opensuse15/x86_64"),
        ("ubuntu", "24.04", "debian", "riscv64", ""),
        ("arch", "", "", "x86_64", ""),
    ],
)
@pytest.mark.rows("H012", "P033")
def test_each_system_has_its_folder_or_none(id: str, version: str, like: str, arch: str, found: str) -> None:
    assert directory(System(id, version, tuple(like.split()), arch)) == found


@pytest.mark.rows("H012")
def test_apt_gets_keyring_list_and_preference_under_the_names_of_the_keyring_package(host: Host) -> None:
    assert host.wants(NOBLE) == {
        PREFERENCE: 'Package: *\nPin: origin "mirror.example.com"\nPin-Priority: 600\n',
        KEYRING: key(1).decode("utf-8", "surrogateescape"),
        f"{LISTS}/cuda-ubuntu2404-x86_64.list": f"deb [signed-by={KEYRING}] {URL}ubuntu2404/x86_64/ /\n",
    }


@pytest.mark.rows("H012")
def test_the_deb822_form_is_a_choice_and_arm_servers_have_their_own_folder(host: Host) -> None:
    arm = System("debian", "13", (), "aarch64", family="apt")
    wanted = host.wants(arm, form="deb822")
    assert wanted[f"{LISTS}/cuda-debian13-sbsa.sources"] == (
        f"Types: deb\nURIs: {URL}debian13/sbsa/\nSuites: /\nSigned-By: {KEYRING}\n"
    )


@pytest.mark.rows("H012")
def test_the_retired_key_goes_and_other_keys_stay(host: Host) -> None:
    retired = (id_of(7)[-8:],)
    host.put("/etc/apt/trusted.gpg", key(5) + key(7) + key(6, new=True))
    host.put("/etc/apt/trusted.gpg.d/old.gpg", key(7))
    host.put("/etc/apt/trusted.gpg.d/old.asc", letters(key(7)))
    host.put("/etc/apt/trusted.gpg.d/two.asc", letters(key(7) + key(4)))
    host.put("/etc/apt/trusted.gpg.d/good.gpg", key(4))
    host.put("/etc/apt/trusted.gpg.d/broken.gpg", b"\x99\xff\xff cut off")
    host.put("/etc/apt/trusted.gpg.d/empty.gpg", b"")
    wanted = {path: text for path, text in host.wants(NOBLE, retired=retired).items() if "trusted" in path}
    assert wanted == {
        "/etc/apt/trusted.gpg": (key(5) + key(6, new=True)).decode("utf-8", "surrogateescape"),
        "/etc/apt/trusted.gpg.d/old.gpg": None,
        "/etc/apt/trusted.gpg.d/old.asc": None,
        "/etc/apt/trusted.gpg.d/two.asc": None,
        "/etc/apt/trusted.gpg.d/two.gpg": key(4).decode("utf-8", "surrogateescape"),
    }
    assert [path for path in host.wants(NOBLE) if "trusted" in path] == []


def test_keyrings_are_taken_apart_and_what_is_none_stays_whole() -> None:
    both = key(1) + key(2, new=True)
    assert without(both, [id_of(1)]) == key(2, new=True)
    assert without(both, [id_of(2)[-8:]]) == key(1)
    assert without(both, [id_of(1), id_of(2)]) == b""
    wrong = (
        b"",
        b"\x13",
        b"text",
        key(1)[:40],
        b"\x9b" + key(1)[1:],
        packet(13, b"user first") + key(1),
        b"\xc6\xff\0",
    )
    for bad in wrong:
        assert without(bad, [id_of(1)]) == bad
    long = b"\xc6\xff" + (70000).to_bytes(4, "big") + bytes(70000)
    assert without(long, ["00000000"]) == long


@pytest.mark.rows("H012", "P034")
def test_another_entry_of_the_same_repository_goes_and_the_rest_of_its_file_stays(host: Host) -> None:
    own = f"{URL}ubuntu2404/x86_64"
    host.put("/etc/apt/sources.list", f"deb {own} /\ndeb http://archive.example.com noble main\n# deb {own}/ /\n")
    host.put(f"{LISTS}/cuda.list", f"deb [trusted=yes arch=amd64] {own}/ /\n")
    host.put(f"{LISTS}/deeper.list", f"deb {own}/other /\n")
    host.put(
        f"{LISTS}/mixed.sources",
        f"Types: deb\nURIs: {own}/\nSuites: /\n\nTypes: deb\nURIs: http://archive.example.com\nSuites: noble\n",
    )
    host.put(f"{LISTS}/twice.sources", f"Types: deb\nURIs:\n  {own}\n# a comment\n {own}/\nSuites: /\n")
    (host.folder / LISTS.lstrip("/") / "folder.list").mkdir()  # apt takes no notice
    wanted = host.wants(NOBLE)
    del wanted[KEYRING], wanted[PREFERENCE], wanted[f"{LISTS}/cuda-ubuntu2404-x86_64.list"]
    assert wanted == {
        "/etc/apt/sources.list": f"deb http://archive.example.com noble main\n# deb {own}/ /\n",
        f"{LISTS}/cuda.list": None,
        f"{LISTS}/twice.sources": None,
        f"{LISTS}/mixed.sources": "\nTypes: deb\nURIs: http://archive.example.com\nSuites: noble\n",
    }


@pytest.mark.rows("H012", "P034")
@pytest.mark.parametrize(
    "uris", [" {own} https://m.example.com/z/", " {own}\n https://m.example.com/z/", "\n {own}/ x"]
)
def test_an_entry_of_several_urls_is_somebodys_own_and_refused(host: Host, uris: str) -> None:
    own = f"{URL}ubuntu2404/x86_64"
    host.put(f"{LISTS}/several.sources", f"Types: deb\nURIs:{uris.format(own=own)}\nSuites: /\n")
    found, findings = source(Repository(url=URL, key=letters(key(1))), NOBLE, host.files)
    assert found is None
    assert [one.id for one in findings] == ["repository_mixed"]
    assert f"{LISTS}/several.sources" in findings[0].detail


@pytest.mark.rows("H012", "P034")
def test_a_folder_is_one_repository_however_its_url_is_spelt_and_other_folders_get_no_preference(host: Host) -> None:
    host.put(f"{LISTS}/old.list", "deb [trusted=yes] file:/srv/mirror/deb /\n")
    wanted = host.wants(NOBLE, url="file:///srv/mirror", path="deb")
    assert wanted[f"{LISTS}/old.list"] is None
    assert PREFERENCE not in wanted


@pytest.mark.rows("H012")
def test_rpm_hosts_get_a_repo_file_with_signed_packages_and_the_key_in_letters(host: Host) -> None:
    wanted = host.wants(ROCKY)
    assert wanted["/etc/pki/rpm-gpg/RPM-GPG-KEY-cuda"] == letters(key(1))
    assert wanted["/etc/yum.repos.d/cuda-rhel9-x86_64.repo"] == (
        "[cuda-rhel9-x86_64]\nname=cuda-rhel9-x86_64\nbaseurl=https://mirror.example.com/cuda/rhel9/x86_64\nenabled=1\n"
        "repo_gpgcheck=0\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-cuda\n"
    )
    assert len(wanted) == 2
    text = host.wants(LEAP, signed="metadata")["/etc/zypp/repos.d/cuda-opensuse15-sbsa.repo"]
    assert "repo_gpgcheck=1\ngpgcheck=0\n" in str(text)


@pytest.mark.parametrize(
    ("system", "options", "id", "words"),
    [
        (NOBLE, {"url": "mirror/cuda"}, "repository_url", "'mirror/cuda' is no URL"),
        (NOBLE, {"url": "https://me:secret@mirror.example.com"}, "repository_url", "has a user or a password in it"),
        (NOBLE, {"key": ""}, "repository_key", "is not given"),
        (NOBLE, {"url": ""}, "repository_url", "has key and neither url nor folder"),
        (NOBLE, {"url": "", "key": "", "key_file": "/srv/key"}, "repository_url", "has key_file and neither"),
        (NOBLE, {"key_file": "/etc"}, "repository_key", "/etc cannot be read as a file"),
        (ROCKY, {"key": "no key"}, "repository_key", "is no public key"),
        (System("debian", "11", family="apt"), {}, "repository_system", "no driver packages for debian 11 on x86_64"),
        (NOBLE, {"folder": "/var/none"}, "repository_folder", "/var/none is not on this host"),
    ],
)
@pytest.mark.rows("H012")
def test_what_is_no_repository_is_refused(host: Host, system: System, options: Any, id: str, words: str) -> None:
    (host.folder / "etc").mkdir()
    wanted = Repository(**dict({"url": URL, "key": letters(key(1))}, **options))
    found, findings = source(wanted, system, host.files)
    assert found is None
    assert [finding.id for finding in findings] == [id]
    assert words in findings[0].detail
    assert "Move it away" not in findings[0].sentence()
    assert findings[0].path.startswith("repository")


def test_a_mirror_may_have_a_path_of_its_own_where_nvidia_publishes_nothing(host: Host) -> None:
    wanted = host.wants(System("debian", "11", family="apt"), path="/drivers/deb/")
    assert f"deb [signed-by={KEYRING}] {URL}drivers/deb/ /\n" in wanted.values()


FOLDER = "/var/nvidia-driver-local-repo-debian12-580.95.05"


@pytest.mark.rows("H013")
def test_the_key_of_a_local_repository_is_put_where_apt_looks_for_it(host: Host) -> None:
    host.put(f"{FOLDER}/nvidia-driver-local-ABCD-keyring.gpg", key(3))
    assert local_folders(host.files) == [FOLDER]
    debian = System("debian", "12", family="apt")
    wanted = host.wants(debian, folder=f"{FOLDER}/")
    keyring = "/usr/share/keyrings/nvidia-driver-local-ABCD-keyring.gpg"
    listed = f"{LISTS}/nvidia-driver-local-debian12-580.95.05.list"
    text = f"deb [signed-by={keyring}] file://{FOLDER}/ /\n"
    assert wanted == {keyring: key(3).decode("utf-8", "surrogateescape"), listed: text}

    # The package's own list stays as it is, whatever its name.
    host.put(f"{LISTS}/other.list", f"deb [signed-by={keyring}] file:{FOLDER} /\n")
    assert host.wants(debian, folder=FOLDER)[f"{LISTS}/other.list"] == f"deb [signed-by={keyring}] file:{FOLDER} /\n"


@pytest.mark.rows("H013")
def test_a_local_repository_of_rpm_keeps_its_own_file_or_gets_one(host: Host) -> None:
    folder = "/var/nvidia-driver-local-repo-rhel9-580.95.05"
    host.put(f"{folder}/ABCD.pub", letters(key(3)))
    wanted = host.wants(ROCKY, folder=folder)
    name = "nvidia-driver-local-rhel9-580.95.05"
    assert f"baseurl=file://{folder}\n" in str(wanted[f"/etc/yum.repos.d/{name}.repo"])
    assert wanted[f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"] == letters(key(3))
    host.put("/etc/yum.repos.d/brought.repo", f"[brought]\nbaseurl=file://{folder}\n")
    assert list(host.wants(ROCKY, folder=folder)) == ["/etc/yum.repos.d/brought.repo"]


@pytest.mark.rows("H013")
def test_a_local_repository_without_its_one_key_is_refused(host: Host) -> None:
    host.put(f"{FOLDER}/Packages", "")
    for count in range(3):
        found, findings = source(Repository(folder=FOLDER), NOBLE, host.files)
        if count == 1:
            assert findings == []
        else:
            assert found is None
            assert f"and {count} found" in findings[0].detail
        host.put(f"{FOLDER}/{count}-keyring.gpg", key(count))


def test_without_a_url_nothing_is_written(host: Host) -> None:
    assert source(Repository(), NOBLE, host.files) == (None, [])


# --- The way there ----------------------------------------------------------------------------------------------------

PROXY, CA = "http://proxy.example.com:3128", "/etc/pki/inside.pem"
SETTINGS = "/etc/apt/apt.conf.d/90gpufleet-cuda-ubuntu2404-x86_64"


@pytest.fixture
def trusting(host: Host) -> Host:
    host.put(CA, "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    return host


def test_apt_goes_by_the_proxy_and_trusts_the_certificates_for_this_repository_alone(trusting: Host) -> None:
    wanted = trusting.wants(NOBLE, proxy=PROXY, ca_file=CA)[SETTINGS]
    assert wanted == (
        f'Acquire::https::Proxy::mirror.example.com "{PROXY}";\nAcquire::https::mirror.example.com::CaInfo "{CA}";\n'
    )
    found, _findings = source(Repository(url=URL, key=letters(key(1)), proxy=PROXY), NOBLE, trusting.files)
    assert found is not None
    assert found.settings == f'Acquire::https::Proxy::mirror.example.com "{PROXY}";\n'  # the probe goes by it too
    plain = trusting.wants(NOBLE, proxy=PROXY, url="http://mirror.example.com/")[SETTINGS]
    assert plain == f'Acquire::http::Proxy::mirror.example.com "{PROXY}";\n'
    assert SETTINGS not in trusting.wants(NOBLE)
    trusting.put(SETTINGS, wanted)
    assert trusting.wants(NOBLE)[SETTINGS] is None  # a proxy that nobody asks for any more


def test_rpms_repository_has_the_proxy_and_the_certificates_in_its_own_file(trusting: Host) -> None:
    text = trusting.wants(ROCKY, proxy=PROXY, ca_file=CA)["/etc/yum.repos.d/cuda-rhel9-x86_64.repo"]
    assert {f"proxy={PROXY}", f"sslcacert={CA}"} <= set(str(text).splitlines())
    text = str(trusting.wants(LEAP, proxy=PROXY)["/etc/zypp/repos.d/cuda-opensuse15-sbsa.repo"])
    assert "baseurl=https://mirror.example.com/cuda/opensuse15/sbsa?proxy=proxy.example.com&proxyport=3128\n" in text
    assert "\nproxy=" not in text


@pytest.mark.parametrize(
    ("system", "options", "path", "words"),
    [
        (NOBLE, {"proxy": "http://me:hunter2@proxy.example.com:3128"}, "repository.proxy", "without a user"),
        (NOBLE, {"proxy": 'http://proxy.example.com";\nx'}, "repository.proxy", "is no proxy"),
        (ROCKY, {"proxy": "proxy.example.com"}, "repository.proxy", "is no proxy"),
        (NOBLE, {"ca_file": "/etc/pki/nowhere.pem"}, "repository.ca_file", "/etc/pki/nowhere.pem is no file of cert"),
        (ROCKY, {"ca_file": "/etc/empty.pem"}, "repository.ca_file", "is no file of certificates"),
        (LEAP, {"ca_file": CA}, "repository.ca_file", "zypper trusts what the host trusts"),
    ],
)
def test_a_way_that_cannot_be_is_refused(
    trusting: Host, system: System, options: dict[str, Any], path: str, words: str
) -> None:
    trusting.put("/etc/empty.pem", "")
    made, (found,) = source(Repository(url=URL, key=letters(key(1)), **options), system, trusting.files)
    assert (made, found.path) == (None, path)
    assert words in found.detail
    assert "hunter2" not in f"{found.detail}{found.remedy}"
