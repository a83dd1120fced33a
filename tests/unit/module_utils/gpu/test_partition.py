# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of mig_partition on GPUs that the NVML double plays: planned, carried out, proved, and nothing written twice."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _checkpoint as checkpoint
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._geometry import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._services import Services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._state import read_all
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._systemd import Units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

MIXED = [{"profiles": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}}]
START = "[1g][1g][------][3g------------]"
AFTER = "[1g][--][2g----][3g------------]"


def uuids(outcome):
    return {
        (each["profile"], each["start"]): (each["id"], each["compute"][0]["uuid"])
        for each in outcome.result.found["gpus"][0]["instances"]
    }


def refused(host, **params) -> str:
    host.forget()
    with pytest.raises(Failure) as failure:
        host.run(**params)
    assert host.writes() == []
    return failure.value.msg


@pytest.mark.rows("ML-10", "ML-13", "ML-18", "S18", "P085")
def test_only_what_must_go_goes_and_the_second_run_writes_nothing(host):
    before = uuids(host.run(state="exported"))
    host.forget()
    outcome = host.run(layout=MIXED)
    assert outcome.result.changed
    assert host.writes() == [
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
    ]
    assert host.slices() == AFTER
    after = uuids(outcome)
    assert after["1g.5gb", 0] == before["1g.5gb", 0]
    assert after["3g.20gb", 4] == before["3g.20gb", 4]
    assert [check.ok for check in outcome.result.verified] == [True]
    host.forget()
    again = host.run(layout=MIXED)
    assert not again.result.changed
    assert again.result.plan == []
    assert host.writes() == []


@pytest.mark.rows("ML-12")
def test_check_mode_tells_the_same_plan_and_writes_nothing(host):
    host.forget()
    checked = host.run(check=True, layout=MIXED)
    assert host.writes() == []
    assert not list((host.root / "etc/systemd/system").iterdir())
    assert checked.diff["before"] == f"GPU 0: {START}\n"
    assert checked.diff["after"] == f"GPU 0: {AFTER}\n"
    real = host.run(layout=MIXED)
    assert checked.result.plan == real.result.plan
    assert checked.result.changed
    (action,) = real.result.plan
    assert action.reason == "2 instances stay, 1 instance goes, 1 instance is new"
    assert action.after["destroy"] == ["1g.5gb@1"]
    assert action.disruptive


@pytest.mark.rows("MM-02", "MM-06")
def test_mig_is_switched_on_and_minors_are_read_again(host_with):
    host = host_with("H200-SXM5-141GB", "H200-SXM5-141GB")
    host.set("shift_minors=1")
    before = [gpu["minor"] for gpu in host.run(state="exported").result.found["gpus"]]
    outcome = host.run(layout=[{"gpus": [1], "profiles": {"1g.18gb": 7}}])
    gpus = outcome.result.found["gpus"]
    assert [gpu["slices"] for gpu in gpus] == ["[MIG off]", "[1g]" * 7 + "[--]"]
    assert [gpu["minor"] for gpu in gpus] != before
    assert outcome.result.found["reset_required"] == []
    host.forget()
    assert not host.run(layout=[{"gpus": [1], "profiles": {"1g.18gb": 7}}]).result.changed  # ML-14: GPU 0 is not named
    assert host.writes() == []


@pytest.mark.rows("ML-14", "MM-05")
def test_mig_is_switched_off_after_its_instances_are_gone(host):
    host.forget()
    outcome = host.run(layout=[{"gpus": [0], "enabled": False}])
    assert host.writes()[-1] == "nvmlDeviceSetMigMode"
    assert host.writes().count("nvmlGpuInstanceDestroy") == 3
    assert outcome.result.found["gpus"][0]["slices"] == "[MIG off]"
    assert outcome.diff["after"] == "GPU 0: [MIG off]\n"


@pytest.mark.rows("MM-02", "MM-03", "P075")
@pytest.mark.parametrize(
    ("words", "key"), [("mode_change=reset", "reset_required"), ("virtualization=1", "reboot_required")]
)
def test_a_mode_that_waits_is_told_and_not_asked_for_twice(host_with, words, key):
    host = host_with("A100-SXM4-40GB")
    host.set("gpu=0", "mode_change=reset", words)
    outcome = host.run(layout=MIXED)
    assert outcome.result.changed
    assert outcome.result.found[key] == [0]
    assert [check.ok for check in outcome.result.verified] == [False]
    assert "waits for a reset" in outcome.result.findings[0].detail
    assert not any(word in " ".join(host.systemctl.ran) for word in ("nvidia-smi", "reset"))
    host.forget()
    again = host.run(layout=MIXED)
    assert host.writes() == []
    assert not again.result.changed
    assert again.result.found[key] == [0]
    host.tool("reset", str(host.state), "gpu=0")
    host.run(layout=MIXED)
    assert host.slices() == "[1g][--][2g----][3g------------]"


@pytest.mark.rows("MM-03", "MM-04", "P086")
def test_a_reset_is_made_when_asked_of_the_changed_gpu_only(host_with):
    host = host_with("A100-SXM4-40GB", "A100-SXM4-40GB")
    host.set("gpu=all", "mode_change=reset")
    outcome = host.run(layout=[{"gpus": [0], "profiles": {"1g.5gb": 2}}], reset=True)
    bus = outcome.result.found["gpus"][0]["bus_id"]
    assert host.systemctl.ran == [f"nvidia-smi --gpu-reset -i {bus}"]
    assert outcome.result.found["gpus"][0]["slices"].startswith("[1g][1g]")
    # A mode that an earlier run asked for is brought about too.
    other = host_with("A100-SXM4-40GB")
    other.set("gpu=0", "mode_change=reset")
    other.run(layout=MIXED)
    assert other.run(layout=MIXED, reset=True).result.changed
    assert other.slices() == "[1g][--][2g----][3g------------]"


@pytest.mark.rows("S20", "ML-04")
def test_a_busy_instance_is_refused_with_its_programs_or_waited_for(host):
    number = next(g["id"] for g in host.run(state="exported").result.found["gpus"][0]["instances"] if g["start"] == 1)
    host.set("gpu=0", f"process=4711,gi={number},ci=0")
    assert host.slices() == "[1g][1g*][------][3g------------]"
    # It fits beside the busy one.
    assert host.run(check=True, layout=MIXED).result.plan[0].after["keep"] == ["1g.5gb@1", "3g.20gb@4"]
    seven = [{"profiles": {"2g.10gb": 2, "3g.20gb": 1}}]
    msg = refused(host, layout=seven)
    assert "GPU 0 (NVIDIA A100-SXM4-40GB): it fits only when instances are gone that are busy." in msg
    assert "End what runs on 1g.5gb@1 (pid 4711), or wait for it with busy=wait." in msg
    lines: list[str] = []
    tools = host.tools()
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            host.set("gpu=0", "no_process=4711")

    tools.sleep = sleep
    outcome = host.run(tools=tools, lines=lines, layout=seven, busy="wait", busy_timeout=60)
    assert outcome.result.changed
    assert len(slept) == 3
    assert [line for line in lines if "waiting for GPU 0" in line and "more)" in line]
    assert host.slices() == "[2g----][2g----][3g------------]"


@pytest.mark.rows("S20")
def test_waiting_ends_at_its_limit_and_never_begins_for_what_never_fits(host):
    host.set("gpu=0", "process=4711")  # of the whole GPU: all instances are held
    tools = host.tools()
    now = [0.0]
    tools.clock = lambda: now[0]
    tools.sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    msg = refused(host, tools=tools, layout=[{"profiles": {}}], busy="wait", busy_timeout=11)
    assert (
        "1g.5gb@0 (pid 4711), 1g.5gb@1 (pid 4711), 3g.20gb@4 (pid 4711) did not end within the 11 s of busy_timeout"
        in msg
    )
    assert msg.endswith("End it, or wait longer, then run again.")
    assert now[0] == 11
    assert "at most 7" in refused(host, tools=tools, layout=[{"profiles": {"1g.5gb": 8}}], busy="wait", busy_timeout=50)
    assert now[0] == 11
    off = [{"enabled": False}]
    assert "MIG can be switched off only when its instances are free" in refused(host, layout=off)


@pytest.mark.rows("MM-02")
def test_mig_is_not_switched_on_under_a_program(host_with):
    host = host_with("H200-SXM5-141GB")
    host.set("gpu=0", "process=99")
    msg = refused(host, layout=[{"profiles": {"1g.18gb": 1}}])
    assert "MIG can be switched on only when no program uses the GPU" in msg
    assert "the GPU (pid 99)" in msg


@pytest.mark.rows("ML-15", "ML-02", "P076")
def test_every_gpu_is_planned_before_the_first_is_touched(host_with):
    host = host_with("A100-SXM4-40GB", "A100-SXM4-40GB", "T4")
    host.set("gpu=0", "mig=1", "gpu=1", "mig=1", "instance=0@0")
    layout = [{"gpus": [0], "profiles": {"1g.5gb": 7}}, {"gpus": [1], "profiles": {"1g.5gb": 4, "2g.10gb": 2}}]
    msg = refused(host, layout=layout)
    assert "GPU 1 (NVIDIA A100-SXM4-40GB): 4 x 1g.5gb + 2 x 2g.10gb do not fit together" in msg
    assert "Change layout[1]." in msg
    for layout, words in (
        ([{"profiles": {"9g.99gb": 1}}], "there is no profile 9g.99gb; this GPU has 1g.5gb, 2g.10gb"),
        ([{"gpus": [5], "profiles": {}}], "names GPU 5, which is not there. There are 0, 1, 2."),
        ([{"gpus": [2], "profiles": {}}], "GPU 2 (Tesla T4) cannot do MIG"),
        ([{"profiles": {}}, {"gpus": [0], "enabled": False}], "wants something else of GPU 0"),
        ([{"profiles": {"1g": 1}}], "is no name of a MIG profile"),
    ):
        assert words in refused(host, layout=layout), words
    assert "has no label all-none. There are " in refused(host, name="all-none")


@pytest.mark.rows("MC-12", "MC-01", "MM-07")
def test_a_shipped_layout_and_a_file_are_applied_by_name(host_with):
    host = host_with("A100-SXM4-40GB", "T4")
    outcome = host.run(name="all-balanced")
    assert outcome.result.found["gpus"][0]["slices"] == "[1g][1g][2g----][3g------------]"
    assert outcome.result.found["gpus"][1]["slices"] == "[no MIG]"
    config = {
        "version": "v1",
        "mig-configs": {"mine": [{"devices": [0], "mig-enabled": True, "mig-devices": {"1c.2g.10gb": 2}}]},
    }
    outcome = host.run(config=config)
    assert outcome.result.found["gpus"][0]["slices"] == "[------][2g:1c+1c][--------------]"
    assert [part["slices"] for part in outcome.result.found["gpus"][0]["instances"][0]["compute"]] == [1, 1]
    exported = host.run(state="exported").result.found
    assert exported["config"]["mig-configs"]["current"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1c.2g.10gb": 2}}
    ]
    assert "all-balanced" in exported["possible"]["mig-configs"]
    host.forget()
    assert not host.run(config=exported["config"]).result.changed
    assert host.writes() == []


@pytest.mark.rows("ML-06", "ML-07")
def test_compute_instances_are_made_and_changed_inside_an_instance_that_stays(host_with):
    host = host_with("H200-SXM5-141GB")
    one = {"profile": "3g.71gb", "start": 4, "compute": [2, 1]}
    first = host.run(layout=[{"instances": [one, {"profile": "1g.35gb"}]}])
    ids = [each["id"] for each in first.result.found["gpus"][0]["instances"]]
    host.forget()
    second = host.run(layout=[{"instances": [{**one, "compute": [1, 1, 1]}, {"profile": "1g.35gb"}]}])
    assert [each["id"] for each in second.result.found["gpus"][0]["instances"]] == ids
    assert host.writes() == ["nvmlComputeInstanceDestroy", *["nvmlGpuInstanceCreateComputeInstanceWithPlacement"] * 2]
    assert "1 with new compute instances" in second.result.plan[0].reason
    assert host.slices() == "[1g----][--------][3g:1c+1c+1c---]".replace("[--------]", "[------]")


@pytest.mark.rows("ML-01")
def test_an_instance_without_compute_instance_is_seen_and_goes(host_with):
    host = host_with("A100-SXM4-40GB")
    host.set("gpu=0", "mig=1", "instance=19@3,ci=none")
    assert host.slices() == "[----------][1g:0c][--------------]"
    host.run(layout=[{"profiles": {}}])
    assert host.slices() == "[------------------------------]"


@pytest.mark.rows("MH-01", "MH-04")
def test_services_are_stopped_around_a_change_and_only_then(host):
    host.systemctl.active = {
        "nvidia-dcgm.service": "active",
        "nvsm.service": "inactive",
        "dcgm-exporter.service": "active",
    }
    host.systemctl.active["nvidia-cdi-refresh.service"] = "inactive"
    services = ["nvsm.service", "nvidia-dcgm.service", "dcgm-exporter.service", "absent.service"]
    host.run(check=True, layout=MIXED, services=services, refresh_cdi=True)
    assert host.systemctl.ran == []
    host.run(layout=MIXED, services=services, refresh_cdi=True)
    assert host.systemctl.ran == [
        "systemctl stop nvidia-dcgm.service",
        "systemctl stop dcgm-exporter.service",
        "systemctl start dcgm-exporter.service",
        "systemctl start nvidia-dcgm.service",
        "systemctl restart nvidia-cdi-refresh.service",
    ]
    host.systemctl.ran.clear()
    host.run(layout=MIXED, services=services, refresh_cdi=True)
    assert host.systemctl.ran == []


@pytest.mark.rows("MH-01", "P080")
def test_services_are_started_again_when_the_change_fails(host):
    host.systemctl.active = {"nvidia-dcgm.service": "active"}
    host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=UNKNOWN")
    with pytest.raises(Failure, match=r"UNKNOWN.*The old layout is back"):
        host.run(layout=MIXED, services=["nvidia-dcgm.service"])
    assert host.systemctl.active == {"nvidia-dcgm.service": "active"}
    assert host.slices() == START


@pytest.mark.rows("ML-16", "ML-11")
def test_a_checkpoint_reads_as_it_was_written_and_as_mig_parted_writes_it(host):
    with Nvml() as nvml:
        saved = checkpoint.save(read_all(nvml)[0])
    text = checkpoint.to_json(saved)
    assert checkpoint.from_json(text) == saved
    assert [(each.profile, each.start, each.size) for each in saved[0].instances] == [(0, 0, 1), (0, 1, 1), (2, 4, 4)]
    theirs = (
        '{"Version":"v1","MigState":{"Devices":[{"UUID":"GPU-a","MigMode":1,"GpuInstances":[{"ProfileID":2,'
        '"Placement":{"Start":4,"Size":4},"ComputeInstances":[{"ProfileID":2,"EngProfileID":0}]}]}]}}'
    )
    (gpu,) = checkpoint.from_json(theirs)
    assert (gpu.enabled, gpu.instances[0].profile, gpu.instances[0].compute[0].start) == (True, 2, -1)
    for broken in ("", "[]", "{}", '{"Version":"v2"}', theirs.replace('"Start":4', '"Start":null'), "[" * 100000):
        with pytest.raises(checkpoint.BadCheckpoint):
            checkpoint.from_json(broken)


@pytest.mark.rows("NV-02")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["driver_state=unloaded"], "DRIVER_NOT_LOADED. Load the NVIDIA driver"),
        (
            ["driver_state=mismatch"],
            "LIB_RM_VERSION_MISMATCH. The driver's library and the loaded",
        ),
        (["permissions=deny"], "NO_PERMISSION. Run as root"),
        (["gpu=0", "lost=1"], "GPU_IS_LOST. The GPU has fallen off the bus"),
    ],
)
def test_the_drivers_errors_say_what_to_do(host, words, said):
    host.set(*words)
    with pytest.raises(Failure) as failure:
        host.run(layout=MIXED)
    assert said in failure.value.msg


BOARD_OF = {
    "A100-SXM4-40GB": "A100 40GB",
    "A100-SXM4-80GB": "A100 80GB",
    "A30": "A30",
    "H100-SXM5-80GB": "H100 80GB",
    "H100-PCIe-80GB": "H100 PCIe",
    "H200-SXM5-141GB": "H200",
    "RTX-PRO-6000": "RTX PRO 6000",
}


@pytest.mark.rows("MC-06", "MC-07", "NV-04")
@pytest.mark.parametrize("product", sorted(BOARD_OF))
def test_the_tables_say_what_the_driver_says(host_with, product):
    host = host_with(product)
    with Nvml() as nvml:
        told = nvml.profiles(nvml.gpu(0))
    key = {(p.index, p.id, p.name, p.slices, p.count, p.starts, p.size) for p in told}
    known = BOARDS[BOARD_OF[product]][1]
    assert key == {(p.index, p.id, p.name, p.slices, p.count, p.starts, p.size) for p in known}
    assert host.writes() == []


@pytest.mark.rows("ML-09")
def test_a_driver_that_is_silent_while_mig_is_off_is_planned_by_the_tables(host_with):
    host = host_with("A100-SXM4-40GB")
    host.set("profiles_without_mig=0")
    assert host.run(check=True, layout=MIXED).diff["after"] == f"GPU 0: {AFTER}\n"
    host.run(layout=MIXED)
    assert host.slices() == AFTER


@pytest.mark.rows("ML-10")
def test_a_place_that_the_driver_refuses_is_planned_around_once(host):
    host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=INSUFFICIENT_RESOURCES")
    outcome = host.run(layout=[{"profiles": {"3g.20gb": 1, "1g.5gb": 3}}])
    assert outcome.result.verified[0].ok
    assert host.slices() == "[1g][1g][--][1g][3g------------]"


@pytest.mark.rows("ML-04")
def test_what_becomes_busy_after_the_plan_is_not_destroyed(host):
    number = next(g["id"] for g in host.run(state="exported").result.found["gpus"][0]["instances"] if g["start"] == 1)
    host.systemctl.active = {"nvidia-dcgm.service": "active"}
    run = host.systemctl.run

    def start_a_program(argv, **more):
        if argv[1] == "stop":
            host.set("gpu=0", f"process=5,gi={number},ci=0")
        return run(argv, **more)

    host.systemctl.run = start_a_program
    host.forget()
    with pytest.raises(Failure, match=r"1g.5gb@1 has become busy since the plan was made"):
        host.run(layout=MIXED, services=["nvidia-dcgm.service"])
    assert host.writes() == []


@pytest.mark.rows("ML-10")
@pytest.mark.parametrize("words", [["policy=spread"], ["policy=ascending"], ["swapped_ids=1"]])
def test_the_drivers_own_placement_and_ids_change_nothing(host_with, words):
    host = host_with("A100-SXM4-40GB")
    host.set(*words, "gpu=0", "mig=1")
    for layout, picture in (
        ([{"profiles": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}], "[1g][1g][2g----][3g------------]"),
        ([{"profiles": {"1g.5gb": 7}}], "[1g]" * 7 + "[--]"),
        ([{"profiles": {"3g.20gb": 2}}], "[3g------------]" * 2),
        (MIXED, "[1g][--][2g----][3g------------]"),
    ):
        host.run(layout=layout)
        assert host.slices() == picture


DCGM = "nvidia-dcgm.service"
KEPT = [{"profiles": {"1g.5gb": 2, "3g.20gb": 1}}]  # what the host has


def test_a_service_that_does_not_start_again_is_told_after_a_failed_step_too(host):
    host.systemctl.active = {DCGM: "active"}
    run = host.systemctl.run

    def fails(argv, **more):
        if "start" in argv:
            raise Failure(f"{DCGM} did not start.")
        return run(argv, **more)

    host.systemctl.run = fails
    host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=UNKNOWN,times=1")
    with pytest.raises(Failure) as failure:
        host.run(layout=MIXED, services=[DCGM])
    assert failure.value.msg.endswith(f"The old layout is back. {DCGM} did not start.")
    host.systemctl.run = run
    assert [action.id for action in host.run(check=True, layout=KEPT).result.plan] == [f"start-{DCGM}"]


def test_a_run_after_a_killed_one_starts_the_services_that_were_stopped(host):
    host.systemctl.active = {DCGM: "active", "other.service": "inactive"}
    files = Files(Root(str(host.root)))
    files.make_folder("/var/lib/gpufleet/mig", 0o700)
    Services(Units(host.systemctl), [DCGM, "other.service"], lambda line: None, files).stop()
    assert host.systemctl.active[DCGM] == "inactive"
    outcome = host.run(layout=KEPT)
    assert outcome.result.changed
    assert host.systemctl.active == {DCGM: "active", "other.service": "inactive"}
    assert not host.run(layout=KEPT).result.changed
    assert not (host.root / "var/lib/gpufleet/mig/stopped.json").exists()


def test_programs_of_services_that_are_stopped_hold_nothing(host):
    ids = [each["id"] for each in host.run(state="exported").result.found["gpus"][0]["instances"]]
    host.set("gpu=0", *[f"process={50 + number},gi={number},ci=0" for number in ids])
    host.systemctl.active = {"vllm.service": "active"}
    tools = host.tools()
    tools.unit_of = lambda pid: "vllm.service"
    off = [{"gpus": "all", "enabled": False}]
    assert "End what runs on" in refused(host, layout=off, services=[DCGM], tools=tools)
    planned = host.run(check=True, layout=off, services=["vllm"], tools=tools)
    assert planned.diff["after"] == "GPU 0: [MIG off]\n"
    with pytest.raises(Failure, match="has become busy"):  # the double's programs go on: the driver is asked again
        host.run(layout=off, services=["vllm"], tools=tools)
    assert host.systemctl.active["vllm.service"] == "active"
    assert host.slices() == "[1g*][1g*][------][3g*-----------]"


def test_a_reset_that_fails_is_a_failed_step(host_with):
    host = host_with("A100-SXM4-40GB")
    host.set("gpu=0", "mode_change=reset")
    run = host.systemctl.run

    def fails(argv, **more):
        if argv[0] == "nvidia-smi":
            raise Failure("`nvidia-smi --gpu-reset` failed with status 3: in use.")
        return run(argv, **more)

    host.systemctl.run = fails
    with pytest.raises(Failure) as failure:
        host.run(layout=[{"profiles": {"1g.5gb": 2}}], reset=True)
    assert "in use" in failure.value.msg
    assert "The old layout is back." in failure.value.msg
    assert failure.value.remaining == [action.id for action in failure.value.result.plan]
    assert not host.run(check=True, layout=[{"enabled": False}]).result.plan  # nothing is asked for any more


def test_specifications_that_are_not_made_anew_are_told_of_a_layout_that_is_made(host):
    host.systemctl.active = {"nvidia-cdi-refresh.service": "inactive"}
    run = host.systemctl.run

    def fails(argv, **more):
        if "restart" in argv:
            raise Failure("`systemctl restart nvidia-cdi-refresh.service` failed with status 1.")
        return run(argv, **more)

    host.systemctl.run = fails
    with pytest.raises(Failure) as failure:
        host.run(layout=MIXED, refresh_cdi=True, restore_at_boot=True)
    told = failure.value.as_dict()
    assert "Then run: systemctl restart nvidia-cdi-refresh.service" in told["msg"]
    assert (told["changed"], told["done"], [one["ok"] for one in told["verified"]]) == (True, ["gpu-0"], [True])
    assert (host.root / "var/lib/gpufleet/mig/layout.json").exists()


def test_a_layout_that_goes_after_it_was_made_is_not_proved(host):
    host.systemctl.active = {DCGM: "active"}
    run = host.systemctl.run

    def wipes(argv, **more):
        if "start" in argv:
            host.set("gpu=0", "no_instances=1")
        return run(argv, **more)

    host.systemctl.run = wipes
    with pytest.raises(Failure, match="not what was planned") as failure:
        host.run(layout=MIXED, services=[DCGM])
    assert [one.ok for one in failure.value.result.verified] == [False]


def test_gpus_that_wait_are_told_beside_those_that_change(host_with):
    host = host_with("A100-SXM4-40GB", "A100-SXM4-40GB")
    host.set("gpu=all", "mode_change=reset")
    host.set("gpu=1", "mig=1", "mode_change=reset")
    host.run(layout=[{"gpus": [0], "profiles": {"1g.5gb": 2}}])
    both = [{"profiles": {"1g.5gb": 3}}]
    for check in (True, False):
        found = host.run(check=check, layout=both).result
        assert found.found["reset_required"] == [0]
    assert {one.id: one.ok for one in found.verified} == {"gpu-0": False, "gpu-1": True}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"gpus": "all"}, "says nothing of what its GPUs shall have"),
        ({"gpus": "all", "profiles": None}, "says nothing of what its GPUs shall have"),
        ({"pci_ids": [], "profiles": {"1g.5gb": 1}}, "is empty and would match every GPU"),
    ],
)
def test_what_would_take_all_instances_away_by_mistake_is_refused(host, entry, says):
    assert says in refused(host, layout=[entry])
    findings = host.run(check=True, layout=[{"profiles": {}}]).result.findings
    assert [finding.id for finding in findings] == ["mig.foreign"]


def test_a_layout_that_is_not_kept_beside_an_older_one_that_is_warns(host):
    host.run(layout=MIXED, restore_at_boot=True)
    outcome = host.run(layout=[{"profiles": {"3g.20gb": 1}}])
    assert [finding.id for finding in outcome.result.findings] == ["mig.restores-other"]


def test_the_layout_before_a_run_that_was_not_taken_back_stays_saved_until_a_run_succeeds(host):
    kept = host.root / "var/lib/gpufleet/mig/checkpoint.json"
    host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=UNKNOWN,times=forever")
    saved = []
    for _attempt in range(2):
        with pytest.raises(Failure, match="UNKNOWN"):
            host.run(layout=[{"profiles": {"7g.40gb": 1}}])
        saved.append([(one.profile, one.start) for one in checkpoint.from_json(kept.read_text())[0].instances])
    assert saved == [[(0, 0), (0, 1), (2, 4)]] * 2
    host.set("no_faults=1")
    host.run(layout=[{"profiles": {"7g.40gb": 1}}])
    assert not kept.exists()


@pytest.mark.rows("ML-12")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("params", [{"layout": MIXED}, {"state": "absent"}])
def test_who_is_not_root_is_refused_before_anything_is_looked_at(host, check, params):
    tools = host.tools()
    tools.is_root = lambda: False
    host.forget()
    with pytest.raises(Failure, match=r"by root only\. Run with become: true\. Nothing has been changed\."):
        host.run(check=check, tools=tools, **params)
    assert host.calls() == []
    assert not (host.root / "var").exists()
    assert host.run(tools=tools, state="exported").result.found["gpus"]


@pytest.mark.rows("ML-12", "MH-01")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("layout", [MIXED, KEPT])
def test_names_that_no_service_can_have_are_refused_in_check_mode_and_without_a_change_too(host, check, layout):
    msg = refused(host, check=check, layout=layout, services=[DCGM, "my service", "dcgm", "a.slice"])
    assert "2 problems" in msg
    assert "services[1]: 'my service.service' is no name of a unit" in msg
    assert "services[3]: 'a.slice' is no name of a unit" in msg


@pytest.mark.rows("ML-12")
@pytest.mark.parametrize("check", [True, False])
def test_a_file_in_the_place_of_the_folder_is_refused_in_check_mode_too(host, check):
    (host.root / "var/lib").mkdir(parents=True)
    (host.root / "var/lib/gpufleet").write_text("")
    assert "/var/lib/gpufleet" in refused(host, check=check, layout=MIXED)


@pytest.mark.rows("S20", "ML-12")
def test_check_mode_does_not_wait_and_tells_what_a_run_would_do(host):
    number = next(g["id"] for g in host.run(state="exported").result.found["gpus"][0]["instances"] if g["start"] == 1)
    host.set("gpu=0", f"process=4711,gi={number},ci=0")
    tools = host.tools()
    tools.sleep = lambda seconds: pytest.fail("check mode waits")
    layout = [{"profiles": {"2g.10gb": 2, "3g.20gb": 1}}]
    host.forget()
    outcome = host.run(check=True, tools=tools, layout=layout, busy="wait", busy_timeout=90)
    assert host.writes() == []
    finding, _foreign = outcome.result.findings
    assert (finding.id, finding.severity) == ("mig.busy", "warning")
    assert finding.detail == (
        "it fits only when instances are gone that are busy. A run waits up to 90 s for 1g.5gb@1 (pid 4711) to end"
    )
    assert outcome.result.changed
    assert outcome.diff["before"] == "GPU 0: [1g][1g*][------][3g------------]\n"
    assert outcome.diff["after"] == "GPU 0: [2g----][2g----][3g------------]\n"
    for params in ({"busy": "refuse"}, {"busy": "wait", "services": ["?"]}):  # no run waits then
        assert "End what runs on 1g.5gb@1 (pid 4711), or wait" in refused(host, check=True, layout=layout, **params)
    never = [{"profiles": {"1g.5gb": 8}}]
    assert "at most 7" in refused(host, check=True, layout=never, busy="wait")
    off = host.run(check=True, tools=tools, layout=[{"enabled": False}], busy="wait")
    assert off.diff["after"] == "GPU 0: [MIG off]\n"


def idle(outcome) -> list[tuple[str, str]]:
    return [(each.severity, each.sentence()) for each in outcome.result.findings if each.id == "mig.no-gpu"]


@pytest.mark.rows("MC-12")
def test_a_shipped_layout_is_silent_about_entries_for_other_gpus_and_refused_when_none_is_for_this_host(host_with):
    assert idle(host_with("A100-SXM4-40GB", "T4").run(check=True, name="all-balanced")) == []
    msg = refused(host_with("T4"), name="all-balanced")
    assert "mig-configs.all-balanced: the layout has nothing for the GPUs of this host: Tesla T4 (0x1EB810DE)." in msg
    assert "Take another name" in msg
    assert idle(host_with("T4").run(name="all-disabled")) == []


@pytest.mark.rows("MC-04")
def test_entries_of_a_file_that_match_no_gpu_are_told_in_one_line(host):
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 1}}
    others = [{**entry, "device-filter": each} for each in ("0x233510DE", "0x233010DE")]
    both = {"version": "v1", "mig-configs": {"mine": [*others, {**entry, "device-filter": "0x20B010DE"}]}}
    assert idle(host.run(check=True, config=both)) == [
        ("info", "config.mig-configs.mine: 2 of 3 entries match no GPU of this host")
    ]
    none = host.run(check=True, config={"version": "v1", "mig-configs": {"mine": others}})
    assert idle(none) == [
        (
            "warning",
            "config.mig-configs.mine: no entry matches a GPU of this host: NVIDIA A100-SXM4-40GB (0x20B010DE)",
        )
    ]
    assert not none.result.changed


def test_entries_of_ones_own_layout_that_match_no_gpu_are_told_one_by_one(host):
    layout = [{"product": product, "profiles": {}} for product in ("A100", "H100", "B200")]
    assert idle(host.run(check=True, layout=layout)) == [
        ("warning", f"layout[{number}]: matches no GPU of this host") for number in (1, 2)
    ]


@pytest.mark.rows("MM-01")
@pytest.mark.parametrize(
    ("gpus", "enabled", "severity"),
    [("all", True, "info"), ("all", False, ""), ([1], False, ""), ([1], True, "error")],
)
def test_mode_and_capability_are_read_and_a_gpu_without_mig_is_left_alone_unless_mig_is_wanted_of_it(
    host_with, gpus, enabled, severity
):
    host = host_with("A100-SXM4-40GB", "T4")
    host.set("gpu=0", "mode_change=reset")
    entry = {"gpus": gpus, "profiles": {}} if enabled else {"gpus": gpus, "enabled": False}
    if severity == "error":
        assert "GPU 1 (Tesla T4) cannot do MIG. Take it out of the list." in refused(host, layout=[entry])
        return
    found = host.run(layout=[entry]).result
    keys = ("mig_capable", "mig_enabled", "mig_pending")
    assert [[gpu[key] for key in keys] for gpu in found.found["gpus"]] == [
        [True, False, enabled],
        [False, False, False],
    ]
    told = [(each.severity, each.target) for each in found.findings if each.id == "mig.not-capable"]
    assert told == ([(severity, "GPU 1")] if severity else [])
