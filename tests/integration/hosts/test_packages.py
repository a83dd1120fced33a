# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit's packages by real apt, dnf and zypper, from repositories made here."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages import compare
from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, library, like_rpm
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository, toolkit
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ensure

pytestmark = pytest.mark.hosts

SHARED = "/srv/repositories"
SYSTEMS = {"debian12": "apt", "debian13": "apt", "debian12-dnf": "dnf", "debian12-zypper": "zypper"}
FOUR = sorted(toolkit.NAMES)
#: What a host of rpm's family has anyway; zypper stumbles over a database with nothing in it.
FILLER = Package("filler", "1.0", provides=("/bin/sh",))

# One run, as the module has it; prints what it planned and did, and every command.
PROGRAM = f"""
import dataclasses, json, sys
sys.path.insert(0, "{LIBRARY}")
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._host._journal import Journal
from {MODULE}.plugins.module_utils._host._packages import manager
from {MODULE}.plugins.module_utils._plan import Failure, errors
from {MODULE}.plugins.module_utils._runtimes._packages import Wanted, plan, plan_absent
from {MODULE}.plugins.module_utils._runtimes._packages_run import COMPONENT, apply, look, look_absent, prove
from {MODULE}.plugins.module_utils._runtimes._repository import Repository

asked = json.loads(sys.argv[1])
ran = []
def watch(moment, what):
    if moment == "before":
        ran.append(what)
    if moment == "before" and asked.get("fail") and asked["fail"] in what:
        raise Failure("the disk is full")
told = {{"done": [], "checks": [], "error": ""}}
files, runner = Files(watch=watch), Runner(watch)
one = manager(runner, files, asked.get("manager", "auto"))
with Journal(files, COMPONENT) as journal:
    try:
        if asked["state"] == "absent":
            todo = plan_absent(look_absent(one, journal))
        else:
            options = dict(asked["wanted"])
            wanted = Wanted(**dict(options, repository=Repository(**options.get("repository", {{}})),
                                   accept=tuple(options.get("accept", ()))))
            todo = plan(look(one, files, journal, wanted), wanted)
        told["actions"] = [(action.verb, action.target) for action in todo.actions]
        told["findings"] = [dataclasses.asdict(finding) for finding in todo.findings]
        told["looked"] = len(ran)
        if todo.actions and not errors(todo.findings) and not asked.get("check"):
            told["done"] = apply(todo, one, files, journal, lambda line: None)
            told["checks"] = [dataclasses.asdict(check) for check in prove(todo, one)]
    except Failure as failure:
        told["error"] = failure.msg
        told["done"], told["remaining"] = failure.done, failure.remaining
told["ran"] = ran
print(json.dumps(told))
"""


class Place:
    """Repositories, and a host for each package manager, started when a test asks for it."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        self._programs = {name: ensure(name) for name in ("nvidia-ctk", "nvidia-cdi-hook")}
        self._key = repository.Key(folder)
        (folder / "key.asc").write_text(self._key.text)
        debs = [*toolkit.packages(self._programs), *toolkit.obsolete()]
        repository.apt(debs, folder / "all/stable/deb/amd64", self._key)
        repository.apt(lacking(debs), folder / "lacking/stable/deb/amd64", self._key)

    def host(self, name: str) -> Host:
        if name not in self._hosts.hosts:
            host = self._hosts.start(name, name, "--volume", f"{self._folder}:{SHARED}:ro")
            library(host, "_host", "_host/_packages", "_matrix", "_runtimes")
            host.put("/tmp/packages.py", PROGRAM)
            if SYSTEMS[name] != "apt":
                self._rpm(host)
        return self._hosts.hosts[name]

    def _rpm(self, host: Host) -> None:
        like_rpm(host)
        if not (self._folder / "all/stable/rpm").exists():
            rpms = [*toolkit.packages(self._programs, kind="rpm"), *toolkit.obsolete(), FILLER]
            repository.rpm(rpms, self._folder / "all/stable/rpm/x86_64", self._key, host)
            repository.rpm(lacking(rpms), self._folder / "lacking/stable/rpm/x86_64", self._key, host)
        host.run(f"rpm -i {SHARED}/all/stable/rpm/x86_64/filler-1.0-1.x86_64.rpm </dev/null")

    def close(self) -> None:
        self._key.close()


def lacking(packages: list[Package]) -> list[Package]:
    """As a mirror that was made of names by hand."""
    return [one for one in packages if (one.name, one.version) != ("libnvidia-container1", "1.20.2")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        made = Place(hosts, tmp_path_factory.mktemp("repositories"))
        yield made
        made.close()


@pytest.fixture(params=list(SYSTEMS))
def host(place: Place, request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host with nothing of the toolkit; what a test leaves is taken off."""
    one = place.host(request.param)
    yield one
    run(one, "absent")
    clean(one)


def clean(host: Host) -> None:
    names = [*FOUR, "nvidia-docker2", "nvidia-container-runtime"]
    if SYSTEMS[host.name] == "apt":
        host.run(["apt-mark", "unhold", *FOUR], check=False)
        host.run(["apt-get", "purge", "-q", "-y", "--allow-change-held-packages", *names], check=False)
    else:
        host.run(f"rpm -e --allmatches $(rpm -qa {' '.join(names)}) </dev/null", check=False)
        host.run("rm -f /etc/zypp/locks; : >/etc/dnf/plugins/versionlock.list", check=False)
    host.run("rm -rf /var/lib/gpufleet /etc/nvidia-container-runtime /etc/docker")


def run(host: Host, state: str = "present", **asked: Any) -> dict[str, Any]:
    options = {key: asked.pop(key) for key in ("check", "fail") if key in asked}
    mirror = asked.pop("mirror", "all")
    if state == "present":
        asked.setdefault("repository", {"url": f"file://{SHARED}/{mirror}", "key_file": f"{SHARED}/key.asc"})
    words = json.dumps({"state": state, "wanted": asked, "manager": SYSTEMS[host.name], **options})
    told: dict[str, Any] = json.loads(host.run(["python3", "-B", "/tmp/packages.py", words], timeout=200).stdout)
    return told


def good(told: dict[str, Any]) -> dict[str, Any]:
    """A run that ended as it should, with what it did proved."""
    assert told["error"] == ""
    assert [one for one in told["findings"] if one["severity"] == "error"] == []
    assert [one for one in told["checks"] if not one["ok"]] == []
    assert len(told["done"]) == len(told["actions"])
    return told


def versions(host: Host) -> dict[str, str]:
    """By dpkg's and rpm's own words."""
    if SYSTEMS[host.name] == "apt":
        said = host.run(
            ["dpkg-query", "-W", "-f", r"${Package} ${Version} ${Status}\n", "*nvidia*"], check=False
        ).stdout
        lines = [line.split() for line in said.splitlines() if line.endswith(" installed")]
    else:
        lines = [
            line.split() for line in host.run("rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE} x\\n'").stdout.splitlines()
        ]
    return {name: version for name, version, *_more in lines if name not in ("filler", "gpg-pubkey")}


def held(host: Host) -> list[str]:
    """What an upgrade of everything leaves alone: the package manager's own list."""
    if SYSTEMS[host.name] == "apt":
        return sorted(host.run(["apt-mark", "showhold"]).stdout.split())
    if SYSTEMS[host.name] == "zypper":
        said = host.run("cat /etc/zypp/locks 2>/dev/null", check=False).stdout
        return sorted(line.split()[1] for line in said.splitlines() if line.startswith("solvable_name:"))
    said = host.run("grep -v '^#' /etc/dnf/plugins/versionlock.list", check=False).stdout
    return sorted(line.rpartition("-0:")[0] for line in said.split())


def upgrade_everything(host: Host) -> None:
    """As an administrator, or a timer at night."""
    commands = {
        "apt": "apt-get -q -y upgrade",
        "dnf": "dnf -q -y upgrade",
        "zypper": "zypper -n update",
    }
    host.run(commands[SYSTEMS[host.name]], timeout=120)


def all_at(version: str) -> dict[str, str]:
    return dict.fromkeys(FOUR, f"{version}-1")


def own(lines: list[str]) -> list[str]:
    """Differences without the package managers' own records."""
    places = (
        "/var/lib/dpkg",
        "/var/lib/apt",
        "/var/lib/rpm",
        "/var/lib/dnf",
        "/var/lib/zypp",
        "/etc/ld.so.cache",
        "/etc/zypp/locks",
    )
    return [line for line in lines if not line.split(": ")[1].startswith(places)]


@pytest.mark.rows("H061", "H062", "P022")
def test_four_packages_come_held_move_together_and_go(host: Host) -> None:
    before = host.snapshot()

    planned = run(host, version="1.19.1", check=True)
    assert planned["error"] == ""
    assert [target for verb, target in planned["actions"] if verb == "install"] == [*toolkit.NAMES]
    assert own(differences(before, host.snapshot())) == []

    good(run(host, version="1.19.1"))
    assert versions(host) == all_at("1.19.1")
    assert held(host) == FOUR
    assert host.run(["nvidia-ctk", "--version"]).stdout
    assert "[nvidia-container-cli]" in host.get("/etc/nvidia-container-runtime/config.toml").decode()
    upgrade_everything(host)
    assert versions(host) == all_at("1.19.1")

    second = good(run(host, version="1.19.1"))
    assert second["actions"] == []
    assert len(second["ran"]) == 2  # what is installed, what is held
    assert good(run(host))["actions"] == []

    moved = good(run(host, version="1.20.2-1"))
    assert [target for verb, target in moved["actions"] if verb == "upgrade"] == [*toolkit.NAMES]
    assert versions(host) == all_at("1.20.2")
    assert held(host) == FOUR

    back = good(run(host, version="1.17.8"))
    assert [target for verb, target in back["actions"] if verb == "downgrade"] == [*toolkit.NAMES]
    assert versions(host) == all_at("1.17.8")
    assert held(host) == FOUR
    assert good(run(host))["actions"] == []  # no version asked: what is there stays
    good(run(host, version="latest"))
    assert versions(host) == all_at("1.20.2")

    good(run(host, "absent"))
    assert versions(host) == {}
    assert "gpg-pubkey" not in host.run("rpm -qa 2>/dev/null", check=False).stdout
    assert held(host) == []
    assert own(differences(before, host.snapshot())) == []
    assert run(host, "absent")["actions"] == []


@pytest.mark.rows("H061")
def test_a_mirror_that_lacks_one_of_the_four_is_refused_before_anything_changes(host: Host) -> None:
    good(run(host, version="1.19.1"))
    before = host.snapshot()
    told = run(host, version="1.20.2", mirror="lacking")
    found = [one for one in told["findings"] if one["severity"] == "error"]
    assert [one["id"] for one in found] == ["toolkit_not_in_repository"]
    assert found[0]["detail"].startswith("libnvidia-container1: ")
    assert told["done"] == []
    assert own(differences(before, host.snapshot())) == []
    # The newest that the mirror has of all of them is good enough where no version is asked for.
    good(run(host, version="latest", mirror="lacking"))
    assert versions(host) == all_at("1.19.1")


@pytest.mark.rows("H063")
def test_a_version_with_known_holes_is_refused_unless_accepted(host: Host) -> None:
    before = host.snapshot()
    told = run(host, version="1.17.4")
    assert [(one["id"], one["accept"]) for one in told["findings"]] == [("insecure_version", "insecure_version")]
    assert own(differences(before, host.snapshot())) == []
    good(run(host, version="1.17.4", accept=["insecure_version"]))
    assert versions(host) == all_at("1.17.4")


@pytest.mark.rows("H064")
def test_a_host_for_cdi_alone_gets_one_package(host: Host) -> None:
    good(run(host, version="1.20.2", profile="base"))
    assert versions(host) == {"nvidia-container-toolkit-base": "1.20.2-1"}
    assert held(host) == ["nvidia-container-toolkit-base"]
    assert good(run(host, profile="base"))["actions"] == []
    good(run(host))  # the others join, at its version
    assert versions(host) == all_at("1.20.2")


def install_by_hand(host: Host, *pins: str) -> None:
    mirror = f"{SHARED}/all/stable"
    if SYSTEMS[host.name] == "apt":
        host.put("/etc/apt/sources.list.d/hand.list", f"deb [trusted=yes] file:{mirror}/deb/amd64 /\n")
        update = (
            "-o Dir::Etc::sourcelist=sources.list.d/hand.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
        )
        host.run(f"apt-get -q update {update} && apt-get -q -y --allow-downgrades install {' '.join(pins)}")
        host.run("rm /etc/apt/sources.list.d/hand.list")
    else:
        files = " ".join(f"{mirror}/rpm/x86_64/{pin.replace('=', '-')}.x86_64.rpm" for pin in pins)
        host.run(f"rpm -U --oldpackage {files} </dev/null")


@pytest.mark.rows("H061", "P022")
def test_mixed_versions_are_told_and_made_one(host: Host) -> None:
    # Before 1.18 a pin of the toolkit alone let its library move on.
    install_by_hand(
        host, "nvidia-container-toolkit=1.17.8-1", "nvidia-container-toolkit-base=1.17.8-1",
        "libnvidia-container-tools=1.20.2-1", "libnvidia-container1=1.20.2-1",
    )  # fmt: skip
    assert len(set(versions(host).values())) == 2
    told = good(run(host))
    assert [one["id"] for one in told["findings"]] == ["mixed_versions"]
    assert versions(host) == all_at("1.20.2")


@pytest.mark.rows("H062")
def test_what_nvidia_published_before_is_cleared_away_and_files_come_back(host: Host) -> None:
    folder = {"apt": "/etc/apt/sources.list.d", "dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}[
        SYSTEMS[host.name]
    ]
    ending = "list" if SYSTEMS[host.name] == "apt" else "repo"
    install_by_hand(
        host, *(f"{name}=1.19.1-1" for name in FOUR), "nvidia-docker2=2.14.0-1", "nvidia-container-runtime=3.14.0-1"
    )
    old = (
        f"deb [trusted=yes] file://{SHARED}/all/stable/deb/$(ARCH) /\n"
        if ending == "list"
        else "[old]\nname=old\nenabled=0\n"
    )
    host.put(f"{folder}/nvidia-docker.{ending}", old)
    mine = '{"runtimes": {}, "log-level": "warn"}\n'
    host.put("/etc/docker/daemon.json", mine)

    told = good(run(host))
    assert ["delete", f"{folder}/nvidia-docker.{ending}"] in told["actions"]
    assert [target for verb, target in told["actions"] if verb == "remove"] == [
        "nvidia-docker2",
        "nvidia-container-runtime",
    ]
    assert versions(host) == all_at("1.19.1")
    assert host.get("/etc/docker/daemon.json").decode() == mine
    assert not host.exists(f"{folder}/nvidia-docker.{ending}")

    good(run(host, "absent"))
    assert versions(host) == all_at("1.19.1")  # they were there before
    assert held(host) == []
    assert host.get(f"{folder}/nvidia-docker.{ending}").decode() == old
    assert not host.exists(f"{folder}/nvidia-container-toolkit.{ending}")
    host.run(f"rm {folder}/nvidia-docker.{ending}")


@pytest.mark.rows("H061")
def test_what_somebody_else_holds_is_left_unless_accepted(host: Host) -> None:
    install_by_hand(host, *(f"{name}=1.19.1-1" for name in FOUR))
    hold = {"apt": "apt-mark hold", "zypper": "zypper -n addlock", "dnf": "dnf -q -y versionlock add --raw"}
    names = [f"{name}-0:1.19.1-1.*" for name in FOUR] if SYSTEMS[host.name] == "dnf" else FOUR
    host.run([*hold[SYSTEMS[host.name]].split(), *names])
    told = run(host, version="1.20.2")
    assert [(one["id"], one["accept"]) for one in told["findings"]] == [("held", "held")]
    assert versions(host) == all_at("1.19.1")
    good(run(host, version="1.20.2", accept=["held"]))
    assert versions(host) == all_at("1.20.2")
    assert held(host) == FOUR
    good(run(host, "absent"))
    assert held(host) == FOUR  # as they were found


PATTERNS = {
    "dnf": ["dnf", "-q", "-y", "versionlock", "add", "--raw", "*nvidia*1.19*"],  # as NVIDIA's guide has it
    "zypper": ["zypper", "-n", "addlock", "*nvidia*"],
}


@pytest.mark.rows("H019", "H033")
@pytest.mark.parametrize("host", [name for name, kind in SYSTEMS.items() if kind in PATTERNS], indirect=True)
def test_locks_by_a_pattern_are_seen_and_lifted_when_that_is_accepted(host: Host) -> None:
    install_by_hand(host, *(f"{name}=1.19.1-1" for name in FOUR))
    host.run(PATTERNS[SYSTEMS[host.name]])
    assert [one["accept"] for one in run(host, version="1.20.2")["findings"]] == ["held"]
    good(run(host, version="1.20.2", accept=["held"]))
    assert versions(host) == all_at("1.20.2")
    assert held(host) == FOUR


def test_what_fails_leaves_the_rest_as_it_was_and_the_next_run_goes_on(host: Host) -> None:
    install = {"apt": "apt-get install", "dnf": "dnf -y install", "zypper": "--no-refresh install"}[SYSTEMS[host.name]]
    refresh = {"apt": "apt-get update -q -o Dir", "dnf": "makecache", "zypper": "refresh nvidia"}[SYSTEMS[host.name]]
    before = host.snapshot()
    told = run(host, version="1.19.1", fail=refresh)
    assert told["error"] == "the disk is full"
    assert told["done"] == []
    assert own(differences(before, host.snapshot())) == []

    good(run(host, version="1.19.1"))
    told = run(host, version="1.20.2", fail=install)
    assert told["error"] == "the disk is full"
    assert versions(host) == all_at("1.19.1")
    assert held(host) == FOUR
    good(run(host, version="1.20.2"))
    assert versions(host) == all_at("1.20.2")


def test_a_repository_that_another_key_signed_is_refused(place: Place) -> None:
    host = place.host("debian13")
    debian = host.run("ls /usr/share/keyrings/debian-archive-bookworm-stable.* | head -1").stdout.strip()
    before = host.snapshot()
    told = run(host, version="1.19.1", repository={"url": f"file://{SHARED}/all", "key_file": debian})
    assert "apt cannot read the repository" in told["error"]
    assert own(differences(before, host.snapshot())) == []


def test_versions_are_ordered_as_dpkg_and_rpm_order_them(place: Place) -> None:
    chance = random.Random(6)
    pieces = ["0", "1", "9", "10", "01", ".", ".", "~", "+", "a", "rc", "el9", "Z"]
    pairs = []
    for _number in range(400):
        one, other = (
            chance.choice(["", "", "1:"]) + "1" + "".join(chance.choices(pieces, k=chance.randint(0, 5))) + "-1"
            for _turn in range(2)
        )
        pairs.append((one, other))
    signs = {-1: "lt", 0: "eq", 1: "gt"}
    lines = "\n".join(
        f"dpkg --compare-versions '{one}' {signs[compare('apt', one, other)]} '{other}' || echo '{one} {other}'"
        for one, other in pairs
    )
    assert place.host("debian12").run(lines).stdout == ""
    asked = [(one, other) for one, other in pairs if ":" not in one + other]
    words = [f"--eval=%{{lua:print(rpm.vercmp('{one}','{other}'))}}" for one, other in asked]
    said = place.host("debian12-dnf").run(["rpm", *words]).stdout.split()
    assert [compare("dnf", one, other) for one, other in asked] == [int(word) for word in said]
