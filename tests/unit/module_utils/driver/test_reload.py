# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver is exchanged in place, or there are reasons why not: never both, never neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._modules import LOAD_ORDER, UNLOAD_ORDER, Loaded
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._reload import Reload, ReloadFacts, decide
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._services import (
    AGENTS,
    EXPORTERS,
    FABRIC,
    LOCAL,
    START_ORDER,
    STOP_ORDER,
    WATCHER,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._users import User

from .machine import NEEDS

CONTAINER = "3f2a" * 16
PERSISTENCED = "nvidia-persistenced.service"
DCGM = "nvidia-dcgm.service"


def modules(**uses: int) -> dict[str, Loaded]:
    """Loaded modules by name, with uses that are no other module's."""
    found = {}
    for name, count in uses.items():
        on_it = tuple(sorted(one for one in uses if name in NEEDS.get(one, ())))
        found[name] = Loaded("", count + len(on_it), on_it)
    return found


HOST = ReloadFacts(
    modules=modules(nvidia=3, nvidia_uvm=1, nvidia_modeset=0, nvidia_drm=0),
    users=(
        User(1, "nvidia-persiste", PERSISTENCED, "", ("/dev/nvidia0",)),
        User(2, "nv-hostengine", DCGM, "", ("/dev/nvidia0",)),
    ),
    running=(DCGM, "kubelet.service", "nvidia-fabricmanager.service", PERSISTENCED, WATCHER),
    wanted=("nvidia_uvm", "nvidia_modeset", "nvidia_drm"),
    kernel="6.8.0-45-generic",
)


@pytest.mark.rows("H052", "H053", "H054", "H055")
def test_a_host_with_its_own_services_is_exchanged_in_order() -> None:
    assert decide(HOST) == Reload(
        stop=(DCGM, "nvidia-fabricmanager.service", PERSISTENCED, WATCHER),
        mask=(PERSISTENCED, "nvidia-fabricmanager.service", "nvidia-imex.service", DCGM),
        unload=("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"),
        load=("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"),
        start=(PERSISTENCED, "nvidia-fabricmanager.service", DCGM, WATCHER),
    )


@pytest.mark.rows("H052")
def test_users_of_a_service_are_stopped_before_it_and_started_after_it() -> None:
    for user, used in (
        (EXPORTERS[0], AGENTS[1]),
        (AGENTS[1], FABRIC[1]),
        (FABRIC[0], FABRIC[1]),
        (FABRIC[1], LOCAL[0]),
    ):
        assert STOP_ORDER.index(user) < STOP_ORDER.index(used)
        assert START_ORDER.index(user) > START_ORDER.index(used)
    assert STOP_ORDER[-1] == WATCHER
    assert sorted(STOP_ORDER) == sorted(START_ORDER)


def test_a_host_without_a_driver_is_only_loaded() -> None:
    found = decide(ReloadFacts(wanted=("nvidia_peermem", "nvidia_uvm")))
    assert (found.stop, found.unload, found.start, found.reasons) == ((), (), (), ())
    assert found.load == ("nvidia", "nvidia_uvm", "nvidia_peermem")


def test_persistence_without_its_daemon_is_switched_off_before() -> None:
    alone = replace(HOST, users=(), running=(), persistence=True)
    assert decide(alone).persistence_off
    assert not decide(HOST).persistence_off


@pytest.mark.rows("H055", "H056")
@pytest.mark.parametrize(
    ("user", "told"),
    [
        (User(4711, "python3", "", CONTAINER), "python3 (pid 4711, container 3f2a3f2a3f2a) uses GPUs. Stop these cont"),
        (User(12, "python3", "session-3.scope"), "python3 (pid 12, session-3.scope) uses GPUs. Stop them."),
        (User(13, "kubelet", "kubelet.service"), "kubelet (pid 13, kubelet.service) uses GPUs."),
        (User(14, "nvidia-cuda-mps-control", ""), "End MPS: echo quit | nvidia-cuda-mps-control."),
        (User(15, "nv-hostengine", DCGM, CONTAINER), "nv-hostengine (pid 15, container 3f2a3f2a3f2a) uses GPUs."),
    ],
)
def test_programs_that_would_go_on_stop_the_exchange_and_waiting_helps(user: User, told: str) -> None:
    found = decide(replace(HOST, users=(*HOST.users, user)))
    assert [reason for reason in found.reasons if told in reason]
    assert found.holders == found.reasons
    assert found.waiting_helps
    assert (found.stop, found.unload, found.load, found.start) == ((), (), (), ())


@pytest.mark.rows("H053", "H056")
def test_a_use_that_no_process_explains_stops_the_exchange() -> None:
    found = decide(replace(HOST, users=(), running=()))
    assert found.reasons == (
        (
            "Something that is no process of this host uses nvidia_uvm, nvidia (1 times). "
            "Stop containers and virtual machines with GPUs."
        ),
    )


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "other kernel": ({"module_for_kernel": False}, "no module for the kernel 6.8.0-45-generic"),
    "key not confirmed": ({"mok_pending": True}, "waits to be confirmed at the console"),
    "nouveau": ({"rival": "nouveau drives a display: it stays."}, "nouveau drives a display"),
    "console": ({"console": "nvidia-drmdrmfb"}, "The console is on the GPU (nvidia-drmdrmfb)"),
    "stuck": ({"users": (User(9, "train", stuck=True),)}, "train (pid 9) waits in the kernel"),
    "Xid": ({"xids": (79, 13, 62)}, "has Xid 62, 79:"),
    "lost": ({"lost": ("0000:06:00.0",)}, "do not answer any more (0000:06:00.0)"),
    "recovery action": ({"recovery_action": "Reboot"}, "GPU recovery action Reboot"),
    "passthrough": ({"passthrough": ("0000:06:00.0",)}, "given to virtual machines (0000:06:00.0)"),
    "vGPU": ({"vgpu_guests": True}, "use vGPUs"),
    "coherent memory": ({"coherent_memory_online": True}, "NUMA node"),
    "NVLink domain": ({"fabric": True}, "NVLink domain of several hosts"),
    "unknown module": ({"modules": {"nvidia": Loaded("", 1, ("odd",))}}, "The kernel module odd stands on NVIDIA's"),
    "uncounted": ({"modules": {"nvidia": Loaded("", -1)}}, "does not count who uses nvidia"),
    "container": ({"sees_all_processes": False}, "Only processes of this container are seen"),
}


@pytest.mark.rows("H056")
@pytest.mark.parametrize("case", REASONS)
def test_each_reason_for_a_reboot_is_a_sentence(case: str) -> None:
    more, told = REASONS[case]
    found = decide(replace(HOST, **more))
    assert [reason for reason in found.reasons if told in reason], found.reasons
    assert len(found.reasons) == 1
    assert found.reasons[0][0].isupper() or found.reasons[0].startswith(("nouveau", "train"))
    assert found.reasons[0].endswith(".")
    assert not found.in_place
    assert not found.waiting_helps


@pytest.mark.rows("H056")
def test_small_errors_need_no_reboot() -> None:
    assert decide(replace(HOST, xids=(13, 31, 43), recovery_action="None")).in_place


#: Each of them in few examples, so that many hosts are exchanged in place.
RARELY = st.sampled_from([False] * 12 + [True])
NAMES = st.sampled_from(["python3", "nv-hostengine", "nvidia-persiste", "nvidia-cuda-mps-server", ""])
UNITS = st.lists(st.sampled_from([*STOP_ORDER, "kubelet.service", "own.service"]), unique=True)


@st.composite
def hosts(draw: Any) -> ReloadFacts:
    """Any host: most of its users are services that run, most circumstances are well."""
    running = draw(UNITS)
    uses = draw(st.dictionaries(st.sampled_from(UNLOAD_ORDER[:-1]), st.sampled_from([0, 0, 0, 1, 3])))
    found = modules(nvidia=draw(st.sampled_from([0, 2])), **uses) if draw(st.booleans()) else {}
    if found and draw(RARELY):
        found["nvidia"] = replace(found["nvidia"], holders=(*found["nvidia"].holders, "odd"))
    units = [one for one in running if one in STOP_ORDER] or [""]
    strange = draw(RARELY)
    user = st.builds(
        User,
        st.integers(1, 99999),
        NAMES,
        st.sampled_from(["", "session-1.scope", "own.service", *STOP_ORDER] if strange else units),
        st.sampled_from(["", CONTAINER]) if strange else st.just(""),
        st.just(("/dev/nvidia0",)),
        st.booleans() if strange else st.just(False),
    )
    return ReloadFacts(
        modules=found,
        users=tuple(draw(st.lists(user, max_size=3))),
        running=tuple(running),
        wanted=tuple(draw(st.lists(st.sampled_from([*LOAD_ORDER, "nvidia-uvm", "nvidia-drm"]), max_size=5))),
        module_for_kernel=not draw(RARELY),
        persistence=draw(st.booleans()),
        mok_pending=draw(RARELY),
        console="nvidia-drm" if draw(RARELY) else "",
        xids=tuple(draw(st.lists(st.sampled_from([13, 31, 79]), max_size=1))) if draw(RARELY) else (),
        fabric=draw(RARELY),
    )


@pytest.mark.rows("H052", "H053", "H054", "H055", "H056")
@given(hosts())
def test_whatever_is_found_there_are_steps_that_end_well_or_reasons(found: ReloadFacts) -> None:
    decided = decide(found)
    steps = (decided.stop, decided.mask, decided.unload, decided.load, decided.start)
    if decided.reasons:
        assert not any(steps)
        assert not decided.persistence_off
        assert all(reason.endswith(".") for reason in decided.reasons)
        return
    walk(found, decided)


def walk(found: ReloadFacts, decided: Reload) -> None:
    """The steps on a host that refuses what a kernel and systemd would refuse."""
    running = list(found.running)
    users = list(found.users)
    for unit in decided.stop:
        running.remove(unit)
        users = [user for user in users if user.unit != unit]
    assert users == [] or not found.modules
    there = list(found.modules)
    for name in decided.unload:
        there.remove(name)
        assert not [one for one in there if name in NEEDS.get(one, ())], f"{name} is in use"
    assert there == []
    for name in decided.load:
        assert set(NEEDS.get(name, ())) - {"ib_core"} <= {*there, "nvidia_modeset"}
        there.append(name)
    wanted = {name.replace("-", "_") for name in found.wanted}
    assert set(there) == {"nvidia", *wanted}
    running += decided.start
    assert sorted(running) == sorted(found.running)
    at = [START_ORDER.index(unit) for unit in decided.start if unit in START_ORDER]
    assert at == sorted(at)
    assert list(decided.start[: len(at)]) == [unit for unit in decided.start if unit in START_ORDER]


@pytest.mark.parametrize("kind", [(True, True), (False, True), (True, False)])
def test_the_property_meets_every_kind_of_answer(kind: tuple[bool, bool]) -> None:
    """Raises NoSuchExample where what the property draws is not of all kinds."""
    find(hosts(), lambda found: (decide(found).in_place, bool(found.modules)) == kind)
