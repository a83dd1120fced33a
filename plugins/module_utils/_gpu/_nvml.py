# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML through pynvml: the only place that imports it.

Every call goes through ``Nvml.call``, which turns errors into ``NvmlError``. Handles are looked up for each call: they
and minor numbers may change with the MIG mode.
"""

from __future__ import annotations

import os
import sys
from ctypes import Array, byref, c_uint
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._board import ComputeInstance, ComputeProfile, Engines, Gpu, GpuInstance, MigDevice, Mode, Process, Profile
from ._names import computed_name

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
FUNCTION_NOT_FOUND = 13
RESET_REQUIRED = 16
IN_USE = 19
INSUFFICIENT_RESOURCES = 23
ARGUMENT_VERSION_MISMATCH = 25

# Code -> name, and what a person can do about it.
ERRORS: Dict[int, Tuple[str, str]] = {
    1: ("UNINITIALIZED", ""),
    INVALID_ARGUMENT: ("INVALID_ARGUMENT", ""),
    NOT_SUPPORTED: ("NOT_SUPPORTED", "This GPU or driver does not offer it."),
    NO_PERMISSION: ("NO_PERMISSION", "Run as root (become: true)."),
    5: ("ALREADY_INITIALIZED", ""),
    NOT_FOUND: ("NOT_FOUND", ""),
    7: ("INSUFFICIENT_SIZE", ""),
    8: ("INSUFFICIENT_POWER", "Check the power cables of the GPU."),
    9: ("DRIVER_NOT_LOADED", "Load the NVIDIA driver: modprobe nvidia."),
    10: ("TIMEOUT", "Try again; when it stays, look for XID errors in the kernel's log."),
    11: ("IRQ_ISSUE", "Look for interrupt errors in the kernel's log."),
    12: ("LIBRARY_NOT_FOUND", "libnvidia-ml.so.1 comes with the NVIDIA driver: install it."),
    FUNCTION_NOT_FOUND: ("FUNCTION_NOT_FOUND", "The driver is too old for it: install a newer one."),
    14: ("CORRUPTED_INFOROM", "The board needs service."),
    15: ("GPU_IS_LOST", "The GPU has fallen off the bus: reboot the host, and look for XID 79 in the kernel's log."),
    RESET_REQUIRED: ("RESET_REQUIRED", "Reset the GPU or reboot the host."),
    17: ("OPERATING_SYSTEM", "The operating system blocks access to the GPU, such as a container's device rules."),
    18: (
        "LIB_RM_VERSION_MISMATCH",
        "The driver's library and the loaded kernel module differ: reload the module or reboot the host.",
    ),
    IN_USE: ("IN_USE", "Stop the programs that use it."),
    20: ("MEMORY", ""),
    21: ("NO_DATA", ""),
    INSUFFICIENT_RESOURCES: ("INSUFFICIENT_RESOURCES", "There is no room left on the GPU for it."),
    ARGUMENT_VERSION_MISMATCH: ("ARGUMENT_VERSION_MISMATCH", "pynvml is newer than the driver."),
    26: ("DEPRECATED", ""),
    27: ("NOT_READY", "Try again."),
    28: ("GPU_NOT_FOUND", ""),
    29: ("INVALID_STATE", ""),
    30: ("RESET_TYPE_NOT_SUPPORTED", "Reboot the host instead."),
    999: ("UNKNOWN", "Look for XID errors in the kernel's log."),
}

_NOBODY = 0xFFFFFFFF  # of a process that is in no instance
_LIMIT = 256  # no driver has as many profiles
_OLD_DRIVER = (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH)


class NvmlError(Exception):
    """A call failed: ``code`` and ``name`` (IN_USE), ``function``, and ``what`` it was about (``GPU 0``)."""

    def __init__(self, code: int, function: str, what: str = "") -> None:
        self.code, self.function, self.what = code, function, what
        self.name, self.remedy = ERRORS.get(code, (f"error {code}", ""))
        about = f" of {what}" if what else ""
        super().__init__(f"{function}{about}: {self.name}.{f' {self.remedy}' if self.remedy else ''}")


class MissingPynvml(Exception):
    """pynvml is not there, or is too old."""


def _load(path: str) -> Any:
    """The module pynvml; ``path`` is a file or a folder to look in first."""
    if path:
        folder = os.path.dirname(path) if path.endswith(".py") else path
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        import pynvml
    except ImportError:
        raise MissingPynvml(
            f"The Python module pynvml is missing for {sys.executable}. Install the package nvidia-ml-py for it "
            "(python3-pynvml on Debian and Ubuntu)."
        ) from None
    return pynvml


class Nvml:
    """A session with the driver. Use it as a context manager; opening raises MissingPynvml or NvmlError."""

    def __init__(self, path: str = "") -> None:
        self._pynvml = _load(path)
        # Profiles change with the MIG mode only. By UUID, and for compute profiles by the GPU instance's profile too.
        self._known: Dict[str, List[Profile]] = {}
        self._known_compute: Dict[Tuple[str, int], List[ComputeProfile]] = {}

    @property
    def library(self) -> Any:
        """The module pynvml, whose source goes into the program that runs at boot."""
        return self._pynvml

    def __enter__(self) -> Nvml:
        self.call("nvmlInit")
        return self

    def __exit__(self, *args: object) -> None:
        try:
            self.call("nvmlShutdown")
        except NvmlError:
            return  # the driver went away meanwhile: nothing is left to close

    # --- the one way in ---------------------------------------------------------------------------------------------

    def call(self, function: str, *args: Any, what: str = "") -> Any:
        """Call a function of pynvml. Raises NvmlError, or MissingPynvml where pynvml does not know it."""
        known = getattr(self._pynvml, function, None)
        if known is None:
            raise MissingPynvml(
                f"The pynvml of {sys.executable} is too old: it lacks {function}. Install nvidia-ml-py 12.560 or newer."
            )
        try:
            return known(*args)
        except self._pynvml.NVMLError as error:
            raise NvmlError(int(error.value), function, what) from None

    def ask(self, function: str, gpu: Gpu, *args: Any) -> Any:
        """What a reading function of a device says; None where the GPU, the driver or pynvml does not offer it."""
        try:
            return _plain(self.call(function, self.handle(gpu), *args, what=_name(gpu)))
        except MissingPynvml:
            return None
        except NvmlError as error:
            if error.code in (NOT_SUPPORTED, INVALID_ARGUMENT, *_OLD_DRIVER):
                return None
            raise

    def handle(self, gpu: Gpu) -> Any:
        """NVML's handle of a GPU."""
        return self.call("nvmlDeviceGetHandleByUUID", gpu.uuid, what=_name(gpu))

    # --- reading ----------------------------------------------------------------------------------------------------

    def system(self) -> Dict[str, Any]:
        """Versions: ``driver``, ``nvml``, and ``cuda`` as 13000 for 13.0."""
        return {
            "driver": _plain(self.call("nvmlSystemGetDriverVersion")),
            "nvml": _plain(self.call("nvmlSystemGetNVMLVersion")),
            "cuda": int(self.call("nvmlSystemGetCudaDriverVersion")),
        }

    def gpu(self, index: int) -> Gpu:
        """One GPU by its number in NVML's order."""
        what = f"GPU {index}"
        handle = self.call("nvmlDeviceGetHandleByIndex", index, what=what)
        pci = self.call("nvmlDeviceGetPciInfo", handle, what=what)
        try:
            minor = int(self.call("nvmlDeviceGetMinorNumber", handle, what=what))
        except NvmlError:
            minor = -1
        return Gpu(
            index,
            _plain(self.call("nvmlDeviceGetUUID", handle, what=what)),
            _plain(pci.busId),
            _plain(self.call("nvmlDeviceGetName", handle, what=what)),
            int(pci.pciDeviceId),
            int(pci.pciSubSystemId),
            minor,
            int(self.call("nvmlDeviceGetMemoryInfo", handle, what=what).total),
        )

    def by_uuid(self) -> Tuple[Dict[str, Gpu], List[str]]:
        """Every GPU that can be read, by its UUID; and a sentence for each that cannot."""
        there, wrong = {}, []
        for index in range(int(self.call("nvmlDeviceGetCount"))):
            try:
                found = self.gpu(index)
                there[found.uuid] = found
            except NvmlError as error:
                wrong.append(f"GPU {index} cannot be read ({error})")
        return there, wrong

    def mode(self, gpu: Gpu) -> Optional[Mode]:
        """The MIG mode; None where the GPU cannot do MIG."""
        answer = self.ask("nvmlDeviceGetMigMode", gpu)
        return None if answer is None else Mode(bool(answer[0]), bool(answer[1]))

    def profiles(self, gpu: Gpu) -> List[Profile]:
        """Profiles that the GPU answers to, by index. Drivers before 550 answer only while MIG is on."""
        if gpu.uuid not in self._known:
            self._known[gpu.uuid] = list(self._profiles(gpu))
        return self._known[gpu.uuid]

    def _profiles(self, gpu: Gpu) -> Iterator[Profile]:
        handle, what = self.handle(gpu), _name(gpu)
        for index, info in self._infos("nvmlDeviceGetGpuInstanceProfileInfo", what, handle):
            start_size = self._placements("nvmlDeviceGetGpuInstancePossiblePlacements", handle, int(info.id), what)
            engines = Engines(info.copyEngineCount, info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount)
            named = _plain(getattr(info, "name", b""))
            name = named[4:] if named.startswith("MIG ") else named
            yield Profile(
                index,
                int(info.id),
                name or computed_name(index, int(info.sliceCount), int(info.memorySizeMB), gpu.memory),
                int(info.sliceCount),
                int(info.memorySizeMB),
                int(info.instanceCount),
                int(info.multiprocessorCount),
                engines,
                tuple(sorted(start for start, _size in start_size)),
                max((size for _start, size in start_size), default=0),
            )

    def instances(self, gpu: Gpu, profiles: List[Profile]) -> List[GpuInstance]:
        """GPU instances with their compute instances, those without any too; by slot. None while MIG is off."""
        mode = self.mode(gpu)
        if mode is None or not mode.current:
            return []
        handle, what = self.handle(gpu), _name(gpu)
        found = []
        for profile in profiles:
            room = max(profile.count, 8)  # some drivers tell a count that is too small
            many = (self._pynvml.c_nvmlGpuInstance_t * room)()
            for instance in self._list("nvmlDeviceGetGpuInstances", handle, profile.id, many, what):
                found.append(self._instance(gpu, instance))
        return sorted(found, key=lambda instance: (instance.start, instance.id))

    def _instance(self, gpu: Gpu, handle: Any) -> GpuInstance:
        what = _name(gpu)
        info = self.call("nvmlGpuInstanceGetInfo", handle, what=what)
        where = f"{what}, instance {int(info.id)}"
        compute: List[ComputeInstance] = []
        key = (gpu.uuid, int(info.profileId))
        if key not in self._known_compute:
            self._known_compute[key] = self._compute_profiles(handle, where)
        profiles = self._known_compute[key]
        for profile in profiles:
            many = (self._pynvml.c_nvmlComputeInstance_t * 8)()
            for each in self._list("nvmlGpuInstanceGetComputeInstances", handle, profile.id, many, where):
                told = self.call("nvmlComputeInstanceGetInfo", each, what=where)
                start, size = int(told.placement.start), int(told.placement.size)
                known = size > 0 and profile.starts != ()
                compute.append(
                    ComputeInstance(
                        int(told.id), profile.id, profile.slices, start if known else -1, size or profile.slices
                    )
                )
        return GpuInstance(
            int(info.id),
            int(info.profileId),
            int(info.placement.start),
            int(info.placement.size),
            tuple(sorted(compute, key=lambda each: (each.start, each.id))),
            tuple(profiles),
        )

    def _compute_profiles(self, handle: Any, what: str) -> List[ComputeProfile]:
        made = []
        for index, info in self._infos("nvmlGpuInstanceGetComputeInstanceProfileInfo", what, handle, 0):
            try:
                places = self._placements(
                    "nvmlGpuInstanceGetComputeInstancePossiblePlacements", handle, int(info.id), what
                )
            except NvmlError as error:
                if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                    raise
                places = []  # an old driver: it places compute instances by itself
            made.append(
                ComputeProfile(
                    index,
                    int(info.id),
                    int(info.sliceCount),
                    int(info.instanceCount),
                    int(info.multiprocessorCount),
                    tuple(sorted(start for start, _size in places)),
                    max((size for _start, size in places), default=int(info.sliceCount)),
                )
            )
        return made

    def processes(self, gpu: Gpu) -> List[Process]:
        """Processes that hold the GPU or its instances: asked of the GPU, and of each MIG device."""
        found = set(self._processes(self.handle(gpu), _name(gpu)))
        for device, handle in self._mig_handles(gpu):
            for process in self._processes(handle, f"{_name(gpu)}, {device.uuid}"):
                found.add(Process(process.pid, process.memory, device.gpu_instance, device.compute_instance))
        return sorted(found, key=lambda each: (each.gpu_instance, each.compute_instance, each.pid))

    def _processes(self, handle: Any, what: str) -> Iterator[Process]:
        for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            try:
                listed = self.call(function, handle, what=what)
            except NvmlError as error:
                if error.code not in (NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND):
                    raise
                continue  # graphics are not to be had on every GPU, and not on MIG devices
            for each in listed:
                gi, ci = (getattr(each, key, None) for key in ("gpuInstanceId", "computeInstanceId"))
                memory = each.usedGpuMemory or 0
                yield Process(int(each.pid), int(memory), _number(gi), _number(ci))

    def mig_devices(self, gpu: Gpu) -> List[MigDevice]:
        """MIG devices with their UUIDs, in NVML's order."""
        return [device for device, _handle in self._mig_handles(gpu)]

    def _mig_handles(self, gpu: Gpu) -> Iterator[Tuple[MigDevice, Any]]:
        parent = self.handle(gpu)
        for index in range(int(self.ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0)):
            try:
                handle = self.call("nvmlDeviceGetMigDeviceHandleByIndex", parent, index, what=_name(gpu))
            except NvmlError as error:
                if error.code in (NOT_FOUND, INVALID_ARGUMENT):
                    continue  # gaps are allowed
                raise
            what = f"MIG device {index} of {_name(gpu)}"
            yield (
                MigDevice(
                    _plain(self.call("nvmlDeviceGetUUID", handle, what=what)),
                    int(self.call("nvmlDeviceGetGpuInstanceId", handle, what=what)),
                    int(self.call("nvmlDeviceGetComputeInstanceId", handle, what=what)),
                ),
                handle,
            )

    def forget(self, gpu: Gpu) -> None:
        """Ask for the profiles of a GPU anew: its mode has changed."""
        self._known.pop(gpu.uuid, None)

    # --- changing ---------------------------------------------------------------------------------------------------

    def set_mode(self, gpu: Gpu, on: bool) -> int:
        """Ask for a MIG mode. Returns 0, or the code of why it is not active yet: IN_USE, RESET_REQUIRED."""
        self.forget(gpu)
        return int(self.call("nvmlDeviceSetMigMode", self.handle(gpu), int(on), what=_name(gpu)))

    def create_instance(self, gpu: Gpu, profile: Profile, start: int) -> GpuInstance:
        """Make a GPU instance at a slot."""
        what = f"{_name(gpu)}, {profile.name} at slot {start}"
        place = byref(self._pynvml.c_nvmlGpuInstancePlacement_t(start, profile.size))
        made = self.call("nvmlDeviceCreateGpuInstanceWithPlacement", self.handle(gpu), profile.id, place, what=what)
        return self._instance(gpu, made)

    def destroy_instance(self, gpu: Gpu, instance: int) -> None:
        """Remove a GPU instance by its id."""
        what = f"{_name(gpu)}, instance {instance}"
        self.call("nvmlGpuInstanceDestroy", self._by_id(gpu, instance), what=what)

    def create_compute(self, gpu: Gpu, instance: int, profile: ComputeProfile, start: int) -> None:
        """Make a compute instance in a GPU instance; at a slice, or where the driver likes with ``start`` -1."""
        what = f"{_name(gpu)}, instance {instance}"
        handle = self._by_id(gpu, instance)
        if start < 0:
            self.call("nvmlGpuInstanceCreateComputeInstance", handle, profile.id, what=what)
            return
        place = byref(self._pynvml.c_nvmlComputeInstancePlacement_t(start, profile.size))
        self.call("nvmlGpuInstanceCreateComputeInstanceWithPlacement", handle, profile.id, place, what=what)

    def destroy_compute(self, gpu: Gpu, instance: int, compute: int) -> None:
        """Remove a compute instance by its GPU instance's id and its own."""
        what = f"{_name(gpu)}, instance {instance}, compute instance {compute}"
        found = self.call("nvmlGpuInstanceGetComputeInstanceById", self._by_id(gpu, instance), compute, what=what)
        self.call("nvmlComputeInstanceDestroy", found, what=what)

    def _by_id(self, gpu: Gpu, instance: int) -> Any:
        what = f"{_name(gpu)}, instance {instance}"
        return self.call("nvmlDeviceGetGpuInstanceById", self.handle(gpu), instance, what=what)

    # --- pitfalls of pynvml -----------------------------------------------------------------------------------------

    def _infos(self, function: str, what: str, handle: Any, *engine: int) -> Iterator[Tuple[int, Any]]:
        """Profile infos by index until INVALID_ARGUMENT: the number of indexes is the library's own, not pynvml's."""
        for index in range(_LIMIT):
            try:
                yield index, self._info(function, what, handle, index, *engine)
            except NvmlError as error:
                if error.code == INVALID_ARGUMENT:
                    return
                if error.code != NOT_SUPPORTED:
                    raise

    def _info(self, function: str, what: str, *args: Any) -> Any:
        try:
            return self.call(function, *args, 2, what=what)
        except NvmlError as error:
            if error.code not in _OLD_DRIVER:
                raise
            return self.call(function, *args, 1, what=what)

    def _placements(self, function: str, handle: Any, profile: int, what: str) -> List[Tuple[int, int]]:
        """(start, size) of each place: asked for their number first."""
        count = c_uint(0)
        self.call(function, handle, profile, None, byref(count), what=what)
        if not count.value:
            return []
        kind = "Gpu" if "Device" in function else "Compute"
        many = (getattr(self._pynvml, f"c_nvml{kind}InstancePlacement_t") * count.value)()
        self.call(function, handle, profile, many, byref(count), what=what)
        return [(int(place.start), int(place.size)) for place in many[: count.value]]

    def _list(self, function: str, handle: Any, profile: int, many: Array[Any], what: str) -> List[Any]:
        count = c_uint(len(many))
        self.call(function, handle, profile, many, byref(count), what=what)
        return list(many[: count.value])


Opener = Callable[[], Nvml]


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _plain(value: Any) -> Any:
    """Text of what older pynvml gives as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(instance: Optional[int]) -> int:
    return -1 if instance is None or instance == _NOBODY else int(instance)
