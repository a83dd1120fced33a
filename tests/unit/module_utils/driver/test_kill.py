# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade that ends at any of its steps: the host has the old driver or the new one, and the next run ends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _found
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import CommandFailed, Done, unwatched
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from .debian_host import INITRD, NEW, OLD, DebianHost, Killed, names
from .machine import KERNEL, said

JOURNAL = "/var/lib/gpufleet/nvidia_driver/journal.jsonl"
MODULE = f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
PERSISTENCED = "nvidia-persistenced.service"
KILLS = "ends of a driver's run at a step"
Stop = Callable[[str], BaseException]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], DebianHost]:
    """Makes hosts with the old driver, which somebody installed without us, and nouveau waiting to come back."""
    monkeypatch.setattr(_found, "_space", lambda place: (100 << 30, False))
    made: list[DebianHost] = []

    def make() -> DebianHost:
        host = DebianHost(tmp_path / f"host{len(made)}").offer(OLD, NEW).have(OLD)
        host.put("/etc/modprobe.d/gpufleet-nouveau.conf", "# of an earlier release\n")
        made.append(host)
        return host

    return make


def is_step(host: DebianHost, what: str, of_journal: bool) -> bool:
    """Commands that change something, and writes of files."""
    if what.startswith(("append to ", "write ", "make folder ", "remove ", "attributes ")):
        return of_journal or "/var/lib/gpufleet" not in what
    host.ran, kept = [what], host.ran
    changes = bool(host.writes())
    host.ran = kept
    return changes


def stopped_at(
    host: DebianHost, number: int, moment: str, stop: Stop, of_journal: bool = False, state: str = "present"
) -> int:
    """Run an upgrade, or a removal, and end it at a step. Returns how many steps there were until then."""
    seen = 0

    def watch(when: str, what: str) -> None:
        nonlocal seen
        if when != moment or not is_step(host, what, of_journal):
            return
        seen += 1
        if seen == number:
            raise stop(what)

    host.watch = watch
    try:
        host.go(version=NEW, state=state)
    except (Killed, Failure):
        assert seen >= number
    finally:
        host.watch = unwatched
    return seen


def has_one_driver(host: DebianHost) -> str:
    """The version of all packages and of the module that the next boot loads."""
    there = {one.partition("-")[0] for name, one in host.installed.items() if "nvidia" in name}
    assert len(there) == 1
    version = there.pop()
    assert version.encode() in (host.root / MODULE).read_bytes()
    return version


def converges(host: DebianHost) -> None:
    host.go(version=NEW)
    assert (has_one_driver(host), host.version, host.held) == (NEW, NEW, set(names(NEW)))
    assert (host.units[PERSISTENCED][0], host.masked) == ("active", set())
    assert host.text(INITRD) != "0"
    host.ran.clear()
    again = host.go(version=NEW)
    assert (again.result.changed, host.writes()) == (False, [])


def moving(host: DebianHost) -> dict[str, str]:
    """What the journal says of an exchange that has not ended."""
    place = host.root / JOURNAL.lstrip("/")
    found: dict[str, str] = {}
    for line in map(json.loads, place.read_text().splitlines() if place.exists() else ()):
        if line.get("note") == "moving":
            found = line["before"]
        if line.get("forget") == "moving":
            found = {}
    return found


def every_kill(
    fresh: Callable[[], DebianHost],
    survived: Callable[[str, int], None],
    moment: str,
    of_journal: bool = False,
    each: int = 1,
) -> set[str]:
    """Kill an upgrade at ``each`` of its steps, and see what is there and that the next run ends it."""
    total = stopped_at(fresh(), 10_000, moment, Killed, of_journal)
    assert total > 15
    ended = set()
    for number in range(2, total + 1, each):
        host = fresh()
        assert stopped_at(host, number, moment, Killed, of_journal) == number
        version = has_one_driver(host)
        if version == NEW and host.version != NEW:
            assert moving(host) == {"from": OLD, "to": NEW}
        ended.add(version)
        converges(host)
    survived(KILLS, len(range(2, total + 1, each)))
    return ended


def test_a_run_that_is_killed_leaves_one_driver_and_is_ended_by_the_next(
    fresh: Callable[[], DebianHost], survived: Callable[[str, int], None]
) -> None:
    assert every_kill(fresh, survived, "after", each=4) == {OLD, NEW}


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "after"])
def test_so_does_a_kill_around_every_command_and_every_write(
    fresh: Callable[[], DebianHost], moment: str, survived: Callable[[str, int], None]
) -> None:
    assert every_kill(fresh, survived, moment, of_journal=True) == {OLD, NEW}


def fails(what: str) -> BaseException:
    return CommandFailed(f"`{what}` failed with status 1: no reason", said(rc=1))


def every_failure(fresh: Callable[[], DebianHost], each: int) -> None:
    total = stopped_at(fresh(), 10_000, "before", fails)
    for number in range(2, total + 1, each):
        host = fresh()
        assert stopped_at(host, number, "before", fails) >= number
        if has_one_driver(host) == OLD:
            assert host.version == OLD
            assert (host.units[PERSISTENCED][0], host.masked) == ("active", set())
            assert moving(host) == {}
        converges(host)


@pytest.mark.rows("H055")
def test_a_command_that_fails_leaves_one_driver_and_the_next_run_ends_it(fresh: Callable[[], DebianHost]) -> None:
    every_failure(fresh, each=4)


@pytest.mark.long
def test_so_does_every_command_that_fails(fresh: Callable[[], DebianHost]) -> None:
    every_failure(fresh, each=1)


@pytest.mark.long
@pytest.mark.rows("H060")
def test_a_removal_that_is_killed_at_any_step_is_ended_by_the_next(
    fresh: Callable[[], DebianHost], survived: Callable[[str, int], None]
) -> None:
    def installed() -> DebianHost:
        host = fresh()
        host.go(state="absent", accept=["not_ours"])
        host.go(version=NEW)
        return host

    total = stopped_at(installed(), 10_000, "before", Killed, of_journal=True, state="absent")
    assert total > 20
    for number in range(1, total + 1):
        host = installed()
        stopped_at(host, number, "before", Killed, of_journal=True, state="absent")
        host.go(state="absent")
        assert not [name for name in host.installed if "nvidia" in name]
        assert (host.held, host.modules, host.masked) == (set(), {}, set())
        assert not (host.root / "var/lib/gpufleet").exists()
        assert host.text("/etc/modprobe.d/gpufleet-nouveau.conf") == "# of an earlier release\n"
    survived(KILLS, total)


def dies(host: DebianHost, after: int, then: int) -> None:
    """Have dpkg end with an error after some packages, and after ``then`` of them from there on."""
    host.dies_after = after
    moved = host._move

    def move(wanted: Sequence[str]) -> Done:
        done = moved(wanted)
        host.dies_after = then
        return done

    host._move = move  # type: ignore[method-assign]


@pytest.mark.rows("P028")
@pytest.mark.parametrize("after", [1, 7])
def test_a_transaction_that_ends_in_the_middle_puts_the_old_packages_back(
    fresh: Callable[[], DebianHost], after: int
) -> None:
    host = fresh()
    dies(host, after, then=-1)
    with pytest.raises(Failure) as failure:
        host.go(version=NEW)
    assert "The old packages (580.82.07) are back." in failure.value.msg
    assert "package-nvidia-utils-580" in failure.value.remaining
    assert (has_one_driver(host), host.version, host.units[PERSISTENCED][0]) == (OLD, OLD, "active")
    converges(host)


def test_where_they_cannot_be_put_back_either_that_is_told_and_the_next_run_goes_on(
    fresh: Callable[[], DebianHost],
) -> None:
    host = fresh()
    dies(host, 3, then=0)
    with pytest.raises(Failure) as failure:
        host.go(version=NEW)
    assert "The old packages (580.82.07) could not be put back" in failure.value.msg
    assert "Installed now: nvidia-dkms-580-open" in failure.value.msg
    assert moving(host) == {"from": OLD, "to": NEW}
    host.dies_after = -1
    host.go(version=NEW)
    converges(host)
