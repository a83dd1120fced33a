# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPUs forget when their driver is unloaded: persistence mode, limits, compute mode and the MIG layout.

It is kept in a file that survives a kill and a reboot, until every GPU has it again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .._gpu import _boot, _kept
from .._gpu._board import Gpu
from .._gpu._execute import Executor
from .._gpu._nvml import MissingPynvml, Nvml, NvmlError, Opener
from .._gpu._state import read_state
from .._host._files import Files
from .._plan import Failure
from ._modules import loaded

FOLDER = "/var/lib/gpufleet/nvidia_driver"
FILE = f"{FOLDER}/settings.json"
VERSION = 1

_GRAPHICS, _MEMORY = 0, 2  # NVML's numbers of clocks

Progress = Callable[[str], None]


@dataclass(frozen=True)
class GpuSettings:
    """One GPU. None: it does not tell, or it is the GPU's own default, so there is nothing to give back.

    ``power_limit`` in milliwatts; ``clocks``: application clocks for memory and graphics in MHz; ``ecc`` is kept by the
    board itself, and told for the report only.
    """

    persistence: Optional[int] = None
    compute_mode: Optional[int] = None
    power_limit: Optional[int] = None
    clocks: Optional[Tuple[int, int]] = None
    ecc: Optional[int] = None


@dataclass(frozen=True)
class Settings:
    """Of all GPUs, by UUID; ``mig`` is the text of a kept layout, as mig_partition keeps it for the boot."""

    gpus: Mapping[str, GpuSettings]
    mig: str = ""


class BadSettings(ValueError):
    """The file is none of ours."""


def read(nvml: Nvml) -> Settings:
    """What the GPUs have now. Raises NvmlError."""
    found: Dict[str, GpuSettings] = {}
    layout: Dict[str, Any] = {}
    for index in range(int(nvml.call("nvmlDeviceGetCount"))):
        gpu = nvml.gpu(index)
        found[gpu.uuid] = _one(nvml, gpu)
        state = read_state(nvml, gpu)
        if state.mode is not None and (state.on or state.mode.pending):
            layout[gpu.uuid] = _kept.of_state(state)
    return Settings(found, _kept.to_json(layout) if layout else "")


def _one(nvml: Nvml, gpu: Gpu) -> GpuSettings:
    limit = nvml.ask("nvmlDeviceGetPowerManagementLimit", gpu)
    ecc = nvml.ask("nvmlDeviceGetEccMode", gpu)
    clocks = _clocks(nvml, gpu, "nvmlDeviceGetApplicationsClock")
    return GpuSettings(
        nvml.ask("nvmlDeviceGetPersistenceMode", gpu),
        nvml.ask("nvmlDeviceGetComputeMode", gpu) or None,
        None if limit == nvml.ask("nvmlDeviceGetPowerManagementDefaultLimit", gpu) else limit,
        None if clocks == _clocks(nvml, gpu, "nvmlDeviceGetDefaultApplicationsClock") else clocks,
        None if ecc is None else ecc[0],
    )


def _clocks(nvml: Nvml, gpu: Gpu, function: str) -> Optional[Tuple[int, int]]:
    memory, graphics = nvml.ask(function, gpu, _MEMORY), nvml.ask(function, gpu, _GRAPHICS)
    return None if memory is None or graphics is None else (int(memory), int(graphics))


def to_json(settings: Settings) -> str:
    """The file's text."""
    document = {
        "version": VERSION,
        "gpus": {uuid: asdict(one) for uuid, one in settings.gpus.items()},
        "mig": settings.mig,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> Settings:
    """Raises BadSettings."""
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise BadSettings(f"its version is {document['version']!r}, not {VERSION}")
        gpus = {str(uuid): _settings(values) for uuid, values in document["gpus"].items()}
        mig = str(document["mig"])
        if mig:
            _kept.from_json(mig)
        return Settings(gpus, mig)
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        if isinstance(error, BadSettings):
            raise
        raise BadSettings(f"{type(error).__name__} {error}") from None


def _settings(values: Mapping[str, Any]) -> GpuSettings:
    clocks = values["clocks"]
    numbers = {name: None if values[name] is None else int(values[name]) for name in _NUMBERS}
    return GpuSettings(**numbers, clocks=None if clocks is None else (int(clocks[0]), int(clocks[1])))


_NUMBERS = ("persistence", "compute_mode", "power_limit", "ecc")


def owed(files: Files) -> bool:
    """Whether an earlier run saved settings, and did not live to give them back."""
    return files.exists(FILE)


def save(opener: Opener, files: Files) -> Optional[Settings]:
    """Keep what the GPUs have, before the driver goes. Returns it; None where no driver answers.

    What an earlier run saved, and did not give back, is kept instead: the GPUs have lost it by now. Raises Failure
    where a driver is there and cannot be asked, since what it has would be lost.
    """
    if owed(files):
        return _checked(files.text(FILE) or "")
    found = _ask(opener, files)
    if found is not None:
        files.make_folder(FOLDER, 0o700)
        files.write(FILE, to_json(found), 0o600)
    return found


def cannot_save(opener: Opener, files: Files) -> str:
    """Why ``save`` would fail, "" where it would not. Writes nothing."""
    try:
        if owed(files):
            _checked(files.text(FILE) or "")
        else:
            _ask(opener, files)
    except Failure as failure:
        return failure.msg
    return ""


def _ask(opener: Opener, files: Files) -> Optional[Settings]:
    if "nvidia" not in loaded(files):
        return None
    try:
        with opener() as nvml:
            return read(nvml)
    except NvmlError as error:
        if error.code in _GONE:
            return None
        raise Failure(f"The settings of the GPUs cannot be saved: {error}") from None
    except MissingPynvml as error:
        raise Failure(f"The settings of the GPUs cannot be saved. {error}") from None


# No driver is loaded, its library is not there, or they are of two versions: there is nobody to ask.
_GONE = (9, 12, 18)


def _checked(text: str) -> Settings:
    try:
        return from_json(text)
    except BadSettings as error:
        raise Failure(
            f"{FILE} holds settings of GPUs that an earlier run saved, and cannot be read: {error}. Look at it, set "
            "the GPUs by hand, and remove it; then run again."
        ) from None


def restore(opener: Opener, files: Files, progress: Progress) -> List[str]:
    """Give the GPUs back what was saved. Returns what could not be given back, as sentences; the file stays then.

    What a GPU has already is not written.
    """
    text = files.text(FILE)
    if text is None:
        return []
    kept = _checked(text)
    try:
        with opener() as nvml:
            wrong = _give(nvml, kept, progress)
    except (NvmlError, MissingPynvml) as error:
        wrong = [f"The GPUs cannot be given their settings back: {error}"]
    if not wrong:
        files.remove(FILE)
    return wrong


def _give(nvml: Nvml, kept: Settings, progress: Progress) -> List[str]:
    there, wrong = nvml.by_uuid()
    if kept.mig:
        # Before the limits: a change of the MIG mode resets some of them.
        wrong += _boot.restore(nvml, _kept.from_json(kept.mig), Executor(nvml, progress))
    for uuid, wanted in kept.gpus.items():
        if uuid in there:
            wrong += _give_one(nvml, there[uuid], wanted)
        elif not any(uuid in line for line in wrong):
            wrong.append(f"GPU {uuid} is not there")
    return wrong


def _give_one(nvml: Nvml, gpu: Gpu, wanted: GpuSettings) -> List[str]:
    """Persistence mode first, so that the rest is not forgotten again at once."""
    wrong = []
    steps: Tuple[Tuple[str, str, str, Optional[int]], ...] = (
        ("persistence mode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceSetPersistenceMode", wanted.persistence),
        ("compute mode", "nvmlDeviceGetComputeMode", "nvmlDeviceSetComputeMode", wanted.compute_mode),
        (
            "power limit",
            "nvmlDeviceGetPowerManagementLimit",
            "nvmlDeviceSetPowerManagementLimit",
            wanted.power_limit,
        ),
    )
    for name, getter, setter, value in steps:
        try:
            if value is not None and nvml.ask(getter, gpu) != value:
                nvml.call(setter, nvml.handle(gpu), value, what=f"GPU {gpu.index}")
        except (NvmlError, MissingPynvml) as error:
            wrong.append(f"GPU {gpu.index}: the {name} {value} is not back ({error})")
    try:
        if wanted.clocks is not None and _clocks(nvml, gpu, "nvmlDeviceGetApplicationsClock") != wanted.clocks:
            nvml.call("nvmlDeviceSetApplicationsClocks", nvml.handle(gpu), *wanted.clocks, what=f"GPU {gpu.index}")
    except (NvmlError, MissingPynvml) as error:
        wrong.append(f"GPU {gpu.index}: the application clocks {wanted.clocks} are not back ({error})")
    return wrong


def persistence_off(opener: Opener) -> None:
    """Switch persistence mode off on every GPU, which else holds the modules without a process. Raises Failure."""
    try:
        with opener() as nvml:
            for index in range(int(nvml.call("nvmlDeviceGetCount"))):
                gpu = nvml.gpu(index)
                if nvml.ask("nvmlDeviceGetPersistenceMode", gpu):
                    nvml.call("nvmlDeviceSetPersistenceMode", nvml.handle(gpu), 0, what=f"GPU {index}")
    except (NvmlError, MissingPynvml) as error:
        raise Failure(f"Persistence mode could not be switched off: {error}") from None
