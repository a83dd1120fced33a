# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances, placements, ids and devices behave as the driver's do."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double, ProgramError

from .conftest import Make, gpu

#: Ids of the profiles on boards of eight slots.
ONE, ONE_ME, ONE_WIDE, TWO, THREE, FOUR, ALL = 19, 20, 15, 14, 9, 5, 0


def create(profile: int, start: int | None = None, size: int = 1, device: int = 0) -> Any:
    if start is None:
        return pynvml.nvmlDeviceCreateGpuInstance(gpu(device), profile)
    place = pynvml.c_nvmlGpuInstancePlacement_t(start=start, size=size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu(device), profile, ctypes.byref(place))


def start_of(instance: Any) -> int:
    start: int = pynvml.nvmlGpuInstanceGetInfo(instance).placement.start
    return start


def on(make: Make, product: str = "H200-SXM5-141GB", count: int = 1) -> Double:
    double = make(product, count)
    double.set("gpu=all", "mig=1")
    return double


@pytest.mark.rows("FK-05")
@pytest.mark.parametrize(
    ("product", "profiles", "starts"),
    [
        ("H100-SXM5-80GB", [ONE] * 7, [6, 4, 5, 0, 1, 2, 3]),
        ("H100-SXM5-80GB", [THREE, ONE, TWO, ONE], [4, 0, 2, 1]),
        ("H100-SXM5-80GB", [TWO] + [ONE] * 5, [4, 6, 0, 1, 2, 3]),
        ("H100-SXM5-80GB", [THREE, THREE], [4, 0]),
        ("A30", [14, 14, 5], [0, 1, 2]),
    ],
)
def test_default_placements_are_those_of_logs(make: Make, product: str, profiles: list[int], starts: list[int]) -> None:
    on(make, product)
    assert [start_of(create(profile)) for profile in profiles] == starts


@pytest.mark.rows("FK-05")
def test_default_placement_can_block_a_larger_instance(make: Make) -> None:
    double = on(make)
    for profile in (ONE, ONE, TWO):
        create(profile)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        create(THREE)
    assert [start for _unused, start in double.layout()] == [0, 4, 6]


@pytest.mark.rows("FK-05")
def test_other_placement_policies(make: Make) -> None:
    double = on(make)
    double.set("policy=ascending")
    assert [start_of(create(ONE)) for _unused in range(3)] == [0, 1, 2]
    double.set("script=5,4")
    assert [start_of(create(ONE)) for _unused in range(2)] == [5, 4]


@pytest.mark.rows("FK-05")
@pytest.mark.parametrize(
    ("swapped", "ids"),
    [
        (
            0,
            {
                (ONE, 0): 7,
                (ONE, 6): 13,
                (TWO, 0): 3,
                (TWO, 2): 4,
                (TWO, 4): 5,
                (THREE, 0): 1,
                (THREE, 4): 2,
                (ALL, 0): 0,
            },
        ),
        (1, {(THREE, 4): 1, (THREE, 0): 2, (ONE, 6): 9, (ONE, 0): 11, (ALL, 0): 0}),
    ],
)
def test_ids_of_instances_follow_the_tree_of_slots(make: Make, swapped: int, ids: dict[tuple[int, int], int]) -> None:
    on(make).set(f"swapped_ids={swapped}")
    sizes = {ONE: 1, TWO: 2, THREE: 4, ALL: 8}
    for (profile, start), wanted in ids.items():
        instance = create(profile, start, sizes[profile])
        assert pynvml.nvmlGpuInstanceGetInfo(instance).id == wanted
        pynvml.nvmlGpuInstanceDestroy(instance)


@pytest.mark.rows("FK-04")
def test_eight_slots_allow_723_layouts_of_78_kinds(make: Make) -> None:
    """Places are asked of the double; in every 24th layout another is given exactly where its slots are free."""
    double = on(make, "A100-SXM4-40GB")
    sizes = {ONE: 1, ONE_WIDE: 2, TWO: 2, THREE: 4, FOUR: 4, ALL: 8}
    table = {(profile, start) for profile, size in sizes.items() for start in range(8) if fits(profile, start, size)}
    assert len(table) == 7 + 4 + 3 + 2 + 1 + 1
    masks = {pair: ((1 << sizes[pair[0]]) - 1) << pair[1] for pair in table}
    layouts = {frozenset[tuple[int, int]]()}
    for pair in table:
        layouts |= {one | {pair} for one in layouts if not any(masks[pair] & masks[other] for other in one)}
    assert len(layouts) == 723
    assert len({tuple(sorted(profile for profile, _unused in one)) for one in layouts}) == 78
    for one in itertools.islice(sorted(map(sorted, layouts)), 0, None, 24):
        double.set("gpu=0", "no_instances=all", *(f"instance={profile}@{start},ci=none" for profile, start in one))
        assert len(double.layout()) == len(one)
        taken = sum(masks[pair] for pair in one)
        assert {pair for pair in table if fits(*pair, sizes[pair[0]])} == {p for p in table if not masks[p] & taken}


def fits(profile: int, start: int, size: int) -> bool:
    try:
        instance = create(profile, start, size)
    except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_InsufficientResources):
        return False
    pynvml.nvmlGpuInstanceDestroy(instance)
    return True


def test_capacity_counts_what_still_fits(make: Make) -> None:
    double = on(make)

    def left() -> list[int]:
        profiles = (ONE, ONE_ME, ONE_WIDE, TWO, THREE, FOUR, ALL)
        return [pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(), profile) for profile in profiles]

    assert left() == [7, 1, 4, 3, 2, 1, 1]
    create(ONE, 1)
    assert left() == [6, 1, 3, 2, 1, 0, 0]
    create(ONE_ME, 6)
    assert left() == [5, 0, 2, 2, 0, 0, 0]
    create(TWO, 4, 2)
    assert left() == [3, 0, 1, 1, 0, 0, 0]
    double.set("gpu=0", "profile.0.count=2")
    assert left()[0] == 1
    create(ONE)
    double.set("gpu=0", "profile.0.count=1")  # fewer than there are
    assert left()[0] == 0


@pytest.mark.parametrize(
    ("profile", "start", "size", "error"),
    [
        (99, 0, 1, pynvml.NVMLError_InvalidArgument),
        (ONE, 7, 1, pynvml.NVMLError_InvalidArgument),
        (TWO, 6, 2, pynvml.NVMLError_InvalidArgument),
        (THREE, 0, 3, pynvml.NVMLError_InvalidArgument),
        (ONE, 0, 1, pynvml.NVMLError_InsufficientResources),
        (FOUR, 0, 4, pynvml.NVMLError_InsufficientResources),
    ],
)
def test_places_that_are_wrong_or_taken_are_refused(
    make: Make, profile: int, start: int, size: int, error: type
) -> None:
    double = on(make)
    create(ONE, 0)
    with pytest.raises(error):
        create(profile, start, size)
    assert double.layout() == [("1g.18gb", 0)]


@pytest.mark.rows("FK-04")
def test_media_engines_limit_instances(make: Make) -> None:
    double = on(make, "RTX-PRO-6000")
    create(65)  # 1g.24gb+me.all has every engine
    for profile in (14, 21, 47, 5, 64):
        assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(), profile) == 0
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            create(profile)
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(), 67) == 3
    create(67)  # 1g.24gb-me needs none
    assert {name for name, _unused in double.layout()} == {"1g.24gb+me.all", "1g.24gb-me"}


def test_without_mig_mode_nothing_is_created_and_profiles_answer(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        create(ONE)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetGpuInstanceById(gpu(), 7)
    for index in (0, 7, 99):
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index)
    count = ctypes.c_uint(7)
    found = (pynvml.c_nvmlGpuInstance_t * 7)()
    pynvml.nvmlDeviceGetGpuInstances(gpu(), ONE, found, ctypes.byref(count))
    assert count.value == 0
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetGpuInstances(gpu(), 99, found, ctypes.byref(count))
    assert pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 0).id == ONE
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 0
    double.set("profiles_without_mig=0")  # as drivers of branch 535
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 0)


@pytest.mark.rows("NV-04")
@pytest.mark.parametrize("count", [17, 18])
def test_profile_indexes_end_with_invalid_argument(make: Make, count: int) -> None:
    make("RTX-PRO-6000", 1).set(f"profile_count={count}", "gpu=0", "profile.17.name=3g.72gb+gfx", "profile.17.id=40")
    found = []
    for index in itertools.count():
        try:
            found.append(pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), index).id)
        except pynvml.NVMLError_NotSupported:
            found.append(None)
        except pynvml.NVMLError_InvalidArgument:
            break
    assert len(found) == count
    assert found[17:] == [40] * (count - 17)


@pytest.mark.rows("NV-03")
def test_versions_of_profile_information(make: Make) -> None:
    make("H200-SXM5-141GB", 1)
    old = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 9, version=1)
    new = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 9)
    by_id = pynvml.nvmlDeviceGetGpuInstanceProfileInfoById(gpu(), ONE_WIDE)
    assert (old.id, old.multiprocessorCount, old.memorySizeMB) == (ONE_WIDE, 26, 33280)
    assert (new.version, new.name, by_id.name) == (0, "MIG 1g.35gb", "MIG 1g.35gb")
    wrong = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    wrong.version = 0x04000098
    call = pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV
    assert call(gpu(), 9, ctypes.byref(wrong)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.rows("NV-03")
def test_too_little_room(make: Make) -> None:
    make("H200-SXM5-141GB", 1)
    count = ctypes.c_uint(3)
    places = (pynvml.c_nvmlGpuInstancePlacement_t * 3)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu(), ONE, places, ctypes.byref(count))
    assert (count.value, [place.start for place in places]) == (7, [0, 1, 2])
    name = ctypes.create_string_buffer(8)
    call = pynvml.nvmlLib.nvmlDeviceGetName
    assert call(gpu(), name, ctypes.c_uint(8)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


# --- compute instances ---


def compute_profiles(instance: Any) -> dict[int, tuple[int, int, int]]:
    """Index -> slices, how many, SMs."""
    found = {}
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, 0)
        except pynvml.NVMLError_NotSupported:
            continue
        assert info.id == index
        found[index] = (info.sliceCount, info.instanceCount, info.multiprocessorCount)
    return found


@pytest.mark.parametrize(
    ("product", "profile", "wanted"),
    [
        ("H200-SXM5-141GB", ONE, {0: (1, 1, 16)}),
        ("H200-SXM5-141GB", ONE_WIDE, {7: (1, 1, 26)}),
        ("A100-SXM4-40GB", ONE_WIDE, {0: (1, 1, 14)}),
        ("A100-SXM4-40GB", TWO, {0: (1, 2, 14), 1: (2, 1, 28)}),
        ("A100-SXM4-40GB", THREE, {0: (1, 3, 14), 1: (2, 1, 28), 2: (3, 1, 42)}),
        ("A100-SXM4-40GB", FOUR, {0: (1, 4, 14), 1: (2, 2, 28), 3: (4, 1, 56)}),
        ("A100-SXM4-40GB", ALL, {0: (1, 7, 14), 1: (2, 3, 28), 2: (3, 2, 42), 3: (4, 1, 56), 4: (7, 1, 98)}),
    ],
)
def test_compute_profiles_of_each_shape(make: Make, product: str, profile: int, wanted: dict[int, Any]) -> None:
    on(make, product)
    assert compute_profiles(create(profile)) == wanted


def test_a_wide_instance_can_answer_the_narrow_profile_too(make: Make) -> None:
    double = on(make, "H200-SXM5-141GB")
    double.set("gpu=0", "narrow_in_wide=1", f"instance={ONE_WIDE}@0")
    (made,) = double.show()["gpus"][0]["instances"]
    assert [ci["profile"] for ci in made["cis"]] == [7]
    assert compute_profiles(create(ONE_WIDE)) == {0: (1, 1, 16), 7: (1, 1, 26)}


def test_compute_instances_share_the_slices(make: Make) -> None:
    on(make, "A100-SXM4-40GB")
    instance = create(FOUR)
    place = pynvml.c_nvmlComputeInstancePlacement_t(start=2, size=2)
    half = pynvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, 1, ctypes.byref(place))
    assert pynvml.nvmlComputeInstanceGetInfo(half).placement.start == 2
    left = [pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, index) for index in (0, 1, 3)]
    assert left == [2, 1, 0]
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 3)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlComputeInstanceDestroy(half)
    pynvml.nvmlGpuInstanceDestroy(instance)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpuInstanceGetInfo(instance)


# --- MIG devices ---


@pytest.mark.rows("FK-07")
def test_mig_devices_are_listed_by_their_ids_not_by_creation(make: Make) -> None:
    on(make)
    for start in (4, 0, 2):
        pynvml.nvmlGpuInstanceCreateComputeInstance(create(ONE, start), 0)
    devices = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index) for index in range(3)]
    assert [pynvml.nvmlDeviceGetGpuInstanceId(device) for device in devices] == [7, 9, 11]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 7
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 3)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 7)


@pytest.mark.rows("FK-07")
def test_a_mig_device_says_what_it_is(make: Make) -> None:
    on(make, "A100-SXM4-40GB")
    instance = create(TWO)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 0)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(gpu()).value == 0
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA A100-SXM4-40GB MIG 1c.2g.10gb"
    attributes = pynvml.nvmlDeviceGetAttributes(device)
    assert [getattr(attributes, field[0]) for field in attributes._fields_] == [14, 2, 1, 0, 0, 0, 2, 1, 9856]
    assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 9856 << 20
    whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert pynvml.nvmlDeviceGetUUID(whole) == pynvml.nvmlDeviceGetUUID(gpu())
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetMinorNumber(device)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetAttributes(gpu())


@pytest.mark.rows("FK-07")
def test_same_ids_give_the_same_uuid_again_and_others_another(make: Make) -> None:
    double = on(make, "H200-SXM5-141GB", 2)

    def uuid(start: int, device: int = 0) -> str:
        instance = create(ONE, start, device=device)
        ci = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
        found: str = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(device), 0))
        handle = pynvml.nvmlDeviceGetHandleByUUID(found)
        assert pynvml.nvmlDeviceGetGpuInstanceId(handle) == pynvml.nvmlGpuInstanceGetInfo(instance).id
        pynvml.nvmlComputeInstanceDestroy(ci)
        pynvml.nvmlGpuInstanceDestroy(instance)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID(found)
        return found

    first = uuid(3)
    assert first.startswith("MIG-")
    assert uuid(3) == first
    assert len({first, uuid(4), uuid(3, device=1)}) == 3
    whole = pynvml.nvmlDeviceGetUUID(gpu())
    double.set("gpu=0", f"instance={ONE}@0")
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{whole}/7/0")).startswith("MIG-")


# --- GPUs ---


def test_a_gpu_is_found_by_uuid_serial_and_address(make: Make) -> None:
    make("H200-SXM5-141GB", 2, "T4", 1)
    for index in range(3):
        device = gpu(index)
        address = pynvml.nvmlDeviceGetPciInfo(device).busId
        for found in (
            pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(device)),
            pynvml.nvmlDeviceGetHandleBySerial(pynvml.nvmlDeviceGetSerial(device)),
            pynvml.nvmlDeviceGetHandleByPciBusId(address),
            pynvml.nvmlDeviceGetHandleByPciBusId(address.lower()[4:]),
        ):
            assert pynvml.nvmlDeviceGetIndex(found) == index
    for wrong in ("00000000:f0:00.0", "GPU-00000000"):
        with pytest.raises((pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument)):
            pynvml.nvmlDeviceGetHandleByPciBusId(wrong)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        gpu(3)


@pytest.mark.rows("FK-04")
def test_mixed_products_on_one_host(make: Make) -> None:
    make("A30", 1, "L40S", 1, "B200-180GB", 1)
    names = [pynvml.nvmlDeviceGetName(gpu(index)) for index in range(3)]
    assert names == ["NVIDIA A30", "NVIDIA L40S", "NVIDIA B200"]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(gpu(1))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetMigMode(gpu(1), 1)
    assert [pynvml.nvmlDeviceGetArchitecture(gpu(index)) for index in range(3)] == [
        pynvml.NVML_DEVICE_ARCH_AMPERE,
        pynvml.NVML_DEVICE_ARCH_ADA,
        pynvml.NVML_DEVICE_ARCH_BLACKWELL,
    ]


def test_unknown_products_are_refused_with_the_known_ones(make: Make) -> None:
    with pytest.raises(ProgramError, match=r"product H300 is unknown; there are A30 .*V100"):
        make("H300", 1)
