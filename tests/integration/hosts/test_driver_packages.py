# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the driver by real apt, dnf and zypper: exchanged whole, held, renamed, downgraded, or refused whole.

The repositories are made here (tests/testbed/drivers). What the module plans with them: test_nvidia_driver.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, library, like_rpm
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs, parts, rpms
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package, call, deb

pytestmark = pytest.mark.hosts

SHARED = "/srv/repositories"
SYSTEMS = {"debian12": "apt", "debian12-dnf": "dnf", "debian12-zypper": "zypper"}
OLD, NEW, NEXT, NEWEST = "580.95.05", "580.178.04", "595.91.07", "620.31.01"
VERSIONS = (OLD, NEW, NEXT)
FILLER = Package("filler", "1.0", provides=("/bin/sh",))

# Calls one after the other, as the module makes them: [name, arguments...] -> what each returned, or its error.
PROGRAM = f"""
import dataclasses, json, sys
sys.path.insert(0, "{LIBRARY}")
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._host._journal import Journal
from {MODULE}.plugins.module_utils._host._packages import _exchange, _streams, manager
from {MODULE}.plugins.module_utils._host._packages._sources import differing, distrust_again, set_up
from {MODULE}.plugins.module_utils._driver._repository import Repository, source
from {MODULE}.plugins.module_utils._driver._types import System
from {MODULE}.plugins.module_utils._plan import Failure

runner, files = Runner(), Files()
kind, calls = json.loads(sys.stdin.read())
one = manager(runner, files, kind)

def exchange(name, pins, remove):
    found = getattr(_exchange, name)(kind, runner, _exchange.Exchange(pins, tuple(remove)))
    return dataclasses.asdict(found) if name == "foresee" else None

def repository(options, system, retired):
    with Journal(files, "driver_repository") as journal:
        made, findings = source(Repository(**options), System(**system), files, (), tuple(retired))
        if made is None:
            raise Failure(findings[0].sentence())
        changed = differing(made.files(), files)[0]
        set_up(changed, made.name, one, journal)
        return sorted(changed)

def give_back():
    with Journal(files, "driver_repository") as journal:
        distrust_again(one, journal)
        for key in journal.notes():
            journal.forget(key)
        return [kept.path for kept in journal.give_back()]

def call(name, *words):
    if name in ("foresee", "download", "carry_out"):
        return exchange(name, *words)
    if name in ("enabled", "enable"):
        return getattr(_streams, name)(runner, *words)
    if name in ("repository", "give_back"):
        return {{"repository": repository, "give_back": give_back}}[name](*words)
    return getattr(one, name)(*words)

answers = []
for words in calls:
    try:
        answers.append(call(*words))
    except Failure as failure:
        answers.append({{"failure": failure.msg}})
print(json.dumps(answers))
"""


class Place:
    """Repositories, and a host for each package manager, started when a test asks for it."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self.folder = hosts, folder
        self.key = repository.Key(folder)
        (folder / "key.asc").write_text(self.key.text)
        packages = [*debs.nvidia_ubuntu((*VERSIONS, NEWEST)), *parts.distribution()]
        repository.apt(packages, folder / "all/deb", self.key)
        lacking = parts.leave_out(packages, "libnvidia-compute-580", version=NEW)
        repository.apt(lacking, folder / "lacking/deb", self.key)
        (folder / "other").mkdir()
        other = repository.Key(folder / "other")
        (folder / "other/key.asc").write_text(other.text)
        other.close()
        for place in (folder, folder / "other"):
            call(["gpg", "--yes", "--output", place / "key.gpg", "--dearmor", place / "key.asc"])
        said = call(["gpg", "--show-keys", "--with-colons", folder / "other/key.gpg"])
        self.other_id = next(line.split(":")[9] for line in said.splitlines() if line.startswith("fpr"))[-8:]

    def host(self, name: str) -> Host:
        if name not in self._hosts.hosts:
            host = self._hosts.start(name, name, "--volume", f"{self.folder}:{SHARED}:ro")
            library(host, "_host", "_host/_packages", "_host_state", "_driver")
            host.put("/tmp/calls.py", PROGRAM)
            if SYSTEMS.get(name, "apt") != "apt":
                self._rpm(host)
        return self._hosts.hosts[name]

    def _rpm(self, host: Host) -> None:
        like_rpm(host)
        kind = SYSTEMS[host.name]
        versions = (OLD, NEXT) if kind == "zypper" else VERSIONS
        made = rpms.suse(versions) if kind == "zypper" else rpms.enterprise(versions)
        packages = [*made, *parts.distribution(), FILLER]
        modules = rpms.modules(versions) if kind == "dnf" else ""
        repository.rpm(packages, self.folder / f"all/{kind}", self.key, host, modules)
        host.run(f"rpm -i {SHARED}/all/{kind}/filler-1.0-1.x86_64.rpm </dev/null")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        made = Place(hosts, tmp_path_factory.mktemp("repositories"))
        yield made
        made.key.close()


@pytest.fixture(params=list(SYSTEMS))
def host(place: Place, request: pytest.FixtureRequest) -> Iterator[Host]:
    one = place.host(request.param)
    point(one, "all")
    yield one
    clean(one)


@pytest.fixture
def apt(place: Place) -> Iterator[Host]:
    one = place.host("debian12")
    yield one
    clean(one)


def kind(host: Host) -> str:
    return SYSTEMS.get(host.name, "apt")


def point(host: Host, mirror: str) -> None:
    """The host's own repository, as an administrator has set it up."""
    url = f"{SHARED}/{mirror}/{'deb' if kind(host) == 'apt' else kind(host)}"
    if kind(host) == "apt":
        host.put("/etc/apt/sources.list", f"deb [trusted=yes] file:{url} /\n")
        host.run(["apt-get", "-q", "update"])
    else:
        folder = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}[kind(host)]
        host.put(f"{folder}/own.repo", f"[own]\nname=own\nbaseurl=file://{url}\nenabled=1\ngpgcheck=0\n")
        host.run({"dnf": "dnf -q makecache", "zypper": "zypper -n -q --no-gpg-checks refresh"}[kind(host)])


def clean(host: Host) -> None:
    if kind(host) == "apt":
        host.run("apt-mark showhold | xargs -r apt-mark unhold")
        host.run("dpkg-query -W -f '${Package}\\n' '*nvidia*' '*cuda*' dkms 2>/dev/null | xargs -r dpkg --purge")
        host.run("rm -f /etc/apt/sources.list.d/* /etc/apt/preferences.d/*; : >/etc/apt/sources.list")
    else:
        host.run("rpm -qa | grep -v -e filler -e gpg-pubkey | xargs -r rpm -e")
        host.run(
            "rm -f /etc/zypp/locks /etc/yum.repos.d/* /etc/zypp/repos.d/*; : >/etc/dnf/plugins/versionlock.list",
            check=False,
        )
        host.run("[ ! -d /etc/dnf ] || dnf -q -y module reset nvidia-driver", check=False)
    host.run("rm -rf /var/lib/gpufleet")


def calls(host: Host, *asked: Sequence[Any]) -> list[Any]:
    words = json.dumps([kind(host), list(asked)]).encode()
    answers: list[Any] = json.loads(host.run(["python3", "-B", "/tmp/calls.py"], stdin=words, timeout=500).stdout)
    return answers


def good(host: Host, *asked: Sequence[Any]) -> list[Any]:
    answers = calls(host, *asked)
    assert [one["failure"] for one in answers if isinstance(one, dict) and "failure" in one] == []
    return answers


def full(host: Host, version: str) -> str:
    return {"apt": f"{version}-1ubuntu1", "dnf": f"3:{version}-1.el9", "zypper": f"{version}-1"}[kind(host)]


def names(host: Host, version: str, flavour: str = "-open") -> list[str]:
    """A set for computing, every member of it."""
    if kind(host) == "apt":
        tag = "-580" if version.startswith("580") else ""
        plain = [
            "libnvidia-cfg1",
            "libnvidia-compute",
            "libnvidia-decode",
            "nvidia-utils",
            "nvidia-compute-utils",
            "nvidia-kernel-common",
        ]
        mine = ["nvidia-dkms", "nvidia-headless", "nvidia-headless-no-dkms", "nvidia-kernel-source"]
        firmware = f"nvidia-firmware{tag}-{version}" if tag else "nvidia-firmware"
        return sorted([*(f"{name}{tag}" for name in plain), *(f"{name}{tag}{flavour}" for name in mine), firmware])
    if kind(host) == "dnf":
        module = rpms.OPEN if flavour else rpms.PROPRIETARY
        return sorted(
            [
                module,
                "nvidia-kmod-common",
                "nvidia-driver-cuda",
                "nvidia-driver-cuda-libs",
                "nvidia-persistenced",
                "libnvidia-ml",
                "libnvidia-cfg",
            ]
        )
    tag = "G06" if version.startswith("580") else "G07"
    module = f"nvidia-open-driver-{tag}" if flavour else f"nvidia-driver-{tag}"
    return sorted([module, f"nvidia-compute-{tag}", f"nvidia-compute-utils-{tag}"])


def pins(host: Host, version: str, flavour: str = "-open") -> dict[str, str]:
    return dict.fromkeys(names(host, version, flavour), full(host, version))


def there(host: Host) -> dict[str, str]:
    """By dpkg's and rpm's own words; dkms is what the driver's packages brought."""
    if kind(host) == "apt":
        said = host.run(
            "dpkg-query -W -f '${Package} ${Version} ${Status}\\n' '*nvidia*' 2>/dev/null", check=False
        ).stdout
        lines = [line.split() for line in said.splitlines() if line.endswith(" installed")]
    else:
        said = host.run("rpm -qa --qf '%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\n'").stdout
        lines = [line.split() for line in said.splitlines()]
    return {line[0]: line[1] for line in lines if line[0] not in ("filler", "gpg-pubkey", "dkms")}


def upgrade_everything(host: Host) -> None:
    """As an administrator, or a timer at night."""
    commands = {"apt": "apt-get -q -y dist-upgrade", "dnf": "dnf -q -y upgrade", "zypper": "zypper -n update"}
    host.run(commands[kind(host)], timeout=300)


def move(host: Host, version: str, flavour: str = "-open") -> None:
    """To another set in one transaction, foreseen before; holds are lifted for it and set again."""
    before = there(host)
    wanted = pins(host, version, flavour)
    leaving = sorted(name for name in before if name not in wanted)
    streams = (
        [("enable", "nvidia-driver", f"{version[:3]}-{'open' if flavour else 'dkms'}")] if kind(host) == "dnf" else []
    )
    answers = good(
        host, *streams, ("unhold", list(before)), ("foresee", wanted, leaving), ("download", wanted, leaving),
        ("carry_out", wanted, leaving), ("hold", list(wanted)), ("held", list(wanted)),
    )  # fmt: skip
    foreseen = answers[len(streams) + 1]
    assert sorted(foreseen["goes"]) == leaving
    # apt shows all that it would touch; the others leave out the epoch, or what stays as it is.
    assert {name for name in foreseen["comes"] if name != "dkms"} <= set(wanted)
    assert {name for name, full in wanted.items() if before.get(name) != full} <= set(foreseen["comes"])
    assert sorted(answers[-1]) == sorted(wanted)
    assert there(host) == wanted


@pytest.mark.rows("H015", "H018", "H024", "H033", "H035", "P026", "P028")
def test_a_driver_moves_as_a_whole_within_a_branch_to_the_next_and_back_and_is_held_everywhere(host: Host) -> None:
    move(host, OLD)
    upgrade_everything(host)
    assert there(host) == pins(host, OLD)
    if kind(host) == "apt":
        move(host, NEW)
    move(host, NEXT)  # other names on apt, another stream on dnf, another generation on SUSE
    move(host, OLD)
    upgrade_everything(host)
    assert there(host) == pins(host, OLD)


@pytest.mark.rows("H035", "H036", "P038")
def test_another_flavour_comes_whole_or_not_at_all_and_leaves_user_space(host: Host) -> None:
    move(host, OLD)
    before, wanted = there(host), pins(host, OLD, "")
    leaving = sorted(name for name in before if name not in wanted)
    impossible = {**wanted, next(iter(wanted)): full(host, "580.99.99")}
    # Holds are lifted, so that nothing but the lack of a package speaks against it.
    answers = calls(
        host, ("unhold", list(before)),
        ("foresee", impossible, leaving), ("download", impossible, leaving), ("carry_out", impossible, leaving),
        ("carry_out", wanted, []),  # the open kernel module is not among what may go
    )  # fmt: skip
    for answer in answers[1:]:
        assert kind(host) in answer["failure"] or "580.99.99" in answer["failure"] or "removed too" in answer["failure"]
        assert "\n" not in answer["failure"]
    assert there(host) == before
    assert len(set(before) & set(wanted)) >= 2
    move(host, OLD, "")


@pytest.mark.rows("H036", "P045")
def test_a_mirror_that_lacks_one_package_has_no_candidate_for_it_before_anything_is_removed(apt: Host) -> None:
    point(apt, "all")
    move(apt, OLD)
    point(apt, "lacking")
    (found,) = good(apt, ("candidates", names(apt, OLD)))
    assert full(apt, NEW) not in found["libnvidia-compute-580"]
    assert full(apt, NEW) in found["nvidia-utils-580"]
    answers = calls(apt, ("unhold", names(apt, OLD)), ("foresee", pins(apt, NEW), [f"nvidia-firmware-580-{OLD}"]))
    assert "libnvidia-compute-580" in answers[1]["failure"]
    assert there(apt) == pins(apt, OLD)


@pytest.mark.rows("H011")
def test_pinning_packages_keep_a_branch_or_a_version_and_a_pin_of_a_metapackage_does_not(apt: Host) -> None:
    point(apt, "all")
    apt.run(f"apt-get -q -y install nvidia-open-580={full(apt, OLD)}")
    assert there(apt)["nvidia-open-580"] == full(apt, OLD)
    assert there(apt)["nvidia-utils-580"] == full(apt, NEW)  # lower bounds only
    clean(apt)

    point(apt, "all")
    for what in (NEXT, "595"):
        good(apt, ("carry_out", {f"nvidia-driver-pinning-{what}": f"{NEXT}-1"}, []))
        apt.run("apt-get -q -y install nvidia-open")
        assert there(apt)["nvidia-open"] == full(apt, NEXT)
        upgrade_everything(apt)
        assert there(apt)["nvidia-open"] == full(apt, NEXT)
        apt.run("apt-get -q -y purge 'nvidia-driver-pinning-*'")
    upgrade_everything(apt)
    assert there(apt)["nvidia-open"] == full(apt, NEWEST)


@pytest.mark.rows("H018", "P031")
def test_streams_decide_what_dnf_sees_and_candidates_of_all_are_known_before_one_is_chosen(place: Place) -> None:
    host = place.host("debian12-dnf")
    point(host, "all")
    try:
        found, none = good(host, ("candidates", ["nvidia-driver-cuda"]), ("enabled", "nvidia-driver"))
        assert found == {"nvidia-driver-cuda": [full(host, version) for version in (NEXT, NEW, OLD)]}
        assert none == ""
        answers = good(
            host, ("enable", "nvidia-driver", "580-open"), ("enabled", "nvidia-driver"),
            ("enable", "nvidia-driver", "595-dkms"), ("enabled", "nvidia-driver"),
            ("enable", "nvidia-driver", ""), ("enabled", "nvidia-driver"),
        )  # fmt: skip
        assert [answers[1], answers[3], answers[5]] == ["580-open", "595-dkms", ""]
        (wrong,) = calls(host, ("enable", "nvidia-driver", "999-open"))
        assert "999-open" in wrong["failure"]
        good(host, ("enable", "nvidia-driver", "580-open"))
        host.run("dnf -q -y install nvidia-driver-cuda kmod-nvidia-open-dkms")
        assert there(host)["nvidia-driver-cuda"] == full(host, NEW)  # and not 595
    finally:
        clean(host)


# --- The repository itself --------------------------------------------------------------------------------------------

LISTS = "/etc/apt/sources.list.d"
BOOKWORM = {"id": "debian", "version": "12", "family": "apt"}
ROCKY = {"id": "rocky", "version": "9.4", "like": ["rhel"], "family": "dnf"}
LEAP = {"id": "opensuse-leap", "version": "15.6", "family": "zypper"}


def files_of(host: Host) -> list[str]:
    """What lies where repositories and keys do, with its content."""
    return host.run("cd / && find etc usr/share/keyrings -type f -print0 | sort -z | xargs -0 sha256sum").stdout.split(
        "\n"
    )


@pytest.mark.rows("H012", "P034")
@pytest.mark.parametrize("form", ["list", "deb822"])
def test_apt_reads_the_repository_whatever_stood_in_its_way_and_all_is_given_back(
    apt: Host, place: Place, form: str
) -> None:
    clean(apt)
    url = f"file://{SHARED}/all"
    for keyring in ("/usr/share/keyrings/other.gpg", "/etc/apt/trusted.gpg.d/other.gpg"):
        apt.put(keyring, place.folder / "other/key.gpg")
    apt.put(f"{LISTS}/cuda.list", f"deb [signed-by=/usr/share/keyrings/other.gpg] {url}/deb/ /\n")
    retired = place.other_id
    apt.run("rm -rf /var/lib/apt/lists/*")  # nothing may be known from a case before
    before = files_of(apt)

    options = {"url": url, "path": "deb", "key_file": f"{SHARED}/key.asc", "form": form}
    (changed, found) = good(apt, ("repository", options, BOOKWORM, [retired]), ("candidates", ["nvidia-open"]))
    assert f"{LISTS}/cuda.list" in changed
    assert "/etc/apt/trusted.gpg.d/other.gpg" in changed
    assert found["nvidia-open"][0] == full(apt, NEWEST)
    # A preference for a folder would be one for every folder of the host.
    assert " 600" not in apt.run(["apt-cache", "policy", "nvidia-open"]).stdout
    apt.run(["apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any"])
    assert good(apt, ("repository", options, BOOKWORM, [retired])) == [[]]
    assert good(apt, ("give_back",)) == [[]]
    assert files_of(apt) == before
    apt.run("rm /etc/apt/trusted.gpg.d/other.gpg /usr/share/keyrings/other.gpg")


@pytest.mark.rows("H013")
def test_a_local_repository_package_is_read_once_its_key_lies_where_apt_looks(apt: Host, place: Place) -> None:
    clean(apt)
    inner = repository.apt(debs.nvidia_debian([OLD]), place.folder / "inner", place.key)
    folder = f"/var/nvidia-driver-local-repo-debian12-{OLD}"
    keyring = f"{folder}/nvidia-driver-local-0123ABCD-keyring.gpg"
    listed = f"deb [signed-by=/usr/share/keyrings/nvidia-driver-local-0123ABCD-keyring.gpg] file://{folder} /\n"
    package = Package(
        f"nvidia-driver-local-repo-debian12-{OLD}", OLD,
        files={
            **{f"{folder}/{path.name}": (path, 0o644) for path in inner.iterdir()},
            keyring: (place.folder / "key.gpg", 0o644),
            f"{LISTS}/nvidia-driver-local-debian12-{OLD}.list": (listed.encode(), 0o644),
        },
    )  # fmt: skip
    apt.put("/tmp/local.deb", deb(package))
    apt.run("dpkg -i /tmp/local.deb")
    assert apt.run("apt-get -q update -o APT::Update::Error-Mode=any", check=False).returncode != 0

    changed, found = good(
        apt, ("repository", {"folder": folder}, BOOKWORM, []), ("candidates", ["nvidia-driver-cuda", "nvidia-open"])
    )
    assert changed == ["/usr/share/keyrings/nvidia-driver-local-0123ABCD-keyring.gpg"]
    assert found["nvidia-driver-cuda"] == [f"{OLD}-1"]
    good(apt, ("give_back",))
    apt.run(f"dpkg --purge {package.name}")


@pytest.mark.rows("H012")
@pytest.mark.parametrize("name", ["debian12-dnf", "debian12-zypper"])
def test_dnf_and_zypper_read_a_mirror_with_signed_metadata_and_the_key_goes_with_it(place: Place, name: str) -> None:
    host = place.host(name)
    clean(host)
    before = host.run("rpm -qa gpg-pubkey").stdout
    options = {
        "url": f"file://{SHARED}",
        "path": f"all/{kind(host)}",
        "key_file": f"{SHARED}/key.asc",
        "signed": "metadata",
    }
    system = ROCKY if kind(host) == "dnf" else LEAP
    wanted = "nvidia-driver-cuda" if kind(host) == "dnf" else "nvidia-compute-utils-G06"
    # First with a key that did not sign it: dnf remembers one that did.
    bad = calls(host, ("repository", dict(options, key_file=f"{SHARED}/other/key.asc"), system, []), ("give_back",))
    assert kind(host) in bad[0]["failure"]
    _changed, found = good(host, ("repository", options, system, []), ("candidates", [wanted]))
    assert full(host, OLD) in found[wanted]
    good(host, ("give_back",))
    assert host.run("rpm -qa gpg-pubkey").stdout == before
    clean(host)
