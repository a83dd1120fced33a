# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications of a host: kept in one place, made anew when they are stale, never replaced by an empty one.

Facts: host-plane facts, 3.7, second table.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._gpu._services import CDI as SERVICE
from .._host._commands import CommandFailed, Done, Runner
from .._host._files import Files
from .._host_state import _cdi as _state
from .._host_state._cdi import Spec
from .._host_state._tree import Problems, Tree
from .._matrix import CDI_READERS, TOOLKIT_CDI_070, version_key
from .._plan import ERROR, WARNING, Action, Failure, Finding
from ._cdi_units import ENVIRONMENT, PERSISTENT, refresh_of

Version = Tuple[int, ...]

#: The lowest release of each reader of specifications that takes a version of the format.
READERS: Dict[str, Dict[str, Version]] = {
    "0.7.0": {name: version_key(oldest) for name, oldest in CDI_READERS.items()},
}
LOWER = "no-additional-gids-for-device-nodes"  # has nvidia-ctk stay below format 0.7.0
_LOWER_SINCE = version_key(TOOLKIT_CDI_070)  # from this release on, format 0.7.0 is the usual one
_STRATEGIES = ("index", "uuid", "type-index")
_MODES = ("auto", "nvml", "csv", "wsl", "management", "gdrcopy", "gds", "imex", "mofed", "nvswitch")
_SCRATCH = "/run/gpufleet-cdi"
_OWN_NAMES = ("nvidia.yaml", "nvidia.yml", "nvidia.json")
_HOOKS = re.compile(r"\bnvidia-(?:cdi-hook|ctk)\b")
_SAID = re.compile(r"""msg="(.+)"\s*\Z""")
_COMMENT = re.compile(r"^\s*#", re.MULTILINE)
_WITHOUT_MODULE = ("csv", "wsl")  # there is no /proc/driver/nvidia on Tegra and WSL
_MOST_NAMED = 5


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``output``: "auto", or the file; ``names``: devices that must be there, as ``all``."""

    output: str = "auto"
    kind: str = "nvidia.com/gpu"
    mode: str = "auto"
    strategies: Tuple[str, ...] = ("index", "uuid")
    feature_flags: Tuple[str, ...] = ()
    disabled_hooks: Tuple[str, ...] = ()
    driver_root: str = ""
    dev_root: str = ""
    names: Tuple[str, ...] = ()
    program: str = "/usr/bin/nvidia-ctk"


@dataclass(frozen=True)
class Host:
    """What is known of the host. ``driver``: version of the loaded module, "" without one; ``installed``: one is there.

    ``uuids``: GPUs without MIG mode and MIG devices, as NVML names them, None where that is not known; ``readers``:
    releases of the runtimes that read specifications; ``toolkit``: its release, () without it.
    """

    driver: str = ""
    installed: bool = True
    uuids: Optional[Sequence[str]] = None
    readers: Mapping[str, Version] = field(default_factory=dict)
    toolkit: Version = ()


@dataclass
class CdiPlan:
    """``output``: the one file; ``argv``: what makes it, without ``--output``; ``make``: why, "" where it is not made.

    ``remove``: made files that are in the way, gone once the one file is good; ``specs``: all that were found.
    """

    output: str
    argv: List[str]
    environment: Dict[str, str]
    make: str = ""
    remove: List[str] = field(default_factory=list)
    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    specs: List[Spec] = field(default_factory=list)


@dataclass
class Made:
    """A new specification, "" where it was refused, and what is to be said of it."""

    text: str
    findings: List[Finding]


Stat = Callable[[str], Optional[os.stat_result]]


def wrong(wish: Wish, option: str = "cdi") -> List[Finding]:
    """What cannot be asked for."""
    found = []
    folder, _slash, name = wish.output.rpartition("/")
    read = folder in _state.FOLDERS and name.endswith((".yaml", ".json")) and name[:1] != "."
    if wish.output != "auto" and not read:
        detail = f"{wish.output!r:.80} is no file that runtimes read"
        remedy = f"Give auto, or a .yaml or .json file in {' or '.join(_state.FOLDERS)}."
        found.append(Finding("cdi_output", ERROR, detail, "", f"{option}.output", remedy))
    if wish.mode not in _MODES:
        remedy = f"One of {', '.join(_MODES)}."
        found.append(Finding("cdi_mode", ERROR, f"{wish.mode!r:.40} is none", "", f"{option}.mode", remedy))
    unknown = [one for one in wish.strategies if one not in _STRATEGIES]
    if unknown or not wish.strategies:
        detail = f"{unknown[0]!r:.40} is none" if unknown else "it is empty"
        remedy = f"Some of {', '.join(_STRATEGIES)}."
        found.append(Finding("cdi_strategies", ERROR, detail, "", f"{option}.strategies", remedy))
    if not re.match(r"[a-z0-9][a-z0-9.-]*[a-z0-9]/[A-Za-z][A-Za-z0-9_-]*\Z", wish.kind):
        detail = f"{wish.kind!r:.60} is not of the form vendor/class"
        found.append(Finding("cdi_kind", ERROR, detail, "", f"{option}.kind", "The usual one is nvidia.com/gpu."))
    return found


def plan(files: Files, wish: Wish, host: Host) -> CdiPlan:
    """What has to be done, and what else is wrong. Reads files, changes nothing. Raises Failure."""
    refresh = refresh_of(files)
    output = wish.output if wish.output != "auto" else refresh.output or PERSISTENT
    flags = _flags(wish, host)
    done = CdiPlan(output, _argv(wish, flags), refresh.environment)
    if os.path.dirname(output) not in _state.FOLDERS:
        remedy = f"Have it write into {' or '.join(_state.FOLDERS)}: see {ENVIRONMENT}."
        done.findings.append(
            Finding("cdi_output", ERROR, f"{SERVICE} writes where no runtime looks", output, "", remedy)
        )
        return done
    if refresh.output and refresh.output != output:
        detail = f"{SERVICE} writes {refresh.output}, so that both name the same devices"
        remedy = f"Leave output at auto, or write NVIDIA_CTK_CDI_OUTPUT_FILE_PATH={output} into {ENVIRONMENT}."
        done.findings.append(Finding("cdi_two_places", ERROR, detail, "", "cdi.output", remedy))
    problems = Problems()
    done.specs = _state.read(Tree(files.root.folder, "cdi", problems))
    for problem in problems.listed():
        if problem.path != output:
            done.findings.append(Finding("cdi_unreadable", WARNING, problem.why, problem.path, "", problem.remedy))
    if host.installed:
        if _one(files, done, wish, host, flags):
            _rivals(files, done, wish, host)
    else:
        for spec in done.specs:
            if spec.kind == wish.kind:
                _clear(files, done, spec, "no driver is installed any more", WARNING)
    return done


def _one(files: Files, done: CdiPlan, wish: Wish, host: Host, flags: Sequence[str]) -> bool:
    """Plan to make the one file where that is needed. Returns whether it is, or can be made, good."""
    mine = next((spec for spec in done.specs if spec.path == done.output), None)
    why = _why(mine, (files.text(done.output) or "") if mine else "", wish, host, _stat(files))
    old = _too_old(mine.version, host.readers) if mine else []
    if mine and old and not why:
        detail = _format(mine.version, old)
        if LOWER in flags:
            why = detail
        else:
            done.findings.append(_newer(done.output, detail))
    if why and host.uuids is not None and not host.uuids:
        detail = f"there is no GPU and no MIG device to name ({why}); what is there stays"
        remedy = "Give GPUs with MIG mode a layout (mig_partition), or see why `nvidia-smi -L` lists none."
        done.findings.append(Finding("cdi_no_devices", WARNING, detail, done.output, "", remedy))
        return False
    if why and not host.driver and wish.mode not in _WITHOUT_MODULE:
        detail = f"no specification can be made while no driver is loaded ({why}); what is there stays"
        remedy = f"Load the driver or reboot; then run again, or: systemctl restart {SERVICE}."
        done.findings.append(Finding("cdi_no_driver", WARNING, detail, done.output, "", remedy))
        return False
    if why:
        done.make = why
        done.actions.append(Action("cdi-generate", "update" if mine else "create", done.output, why))
    return True


def _flags(wish: Wish, host: Host) -> Tuple[str, ...]:
    lower = _too_old("0.7.0", host.readers) and host.toolkit >= _LOWER_SINCE and LOWER not in wish.feature_flags
    return (*wish.feature_flags, LOWER) if lower else wish.feature_flags


def _argv(wish: Wish, flags: Sequence[str]) -> List[str]:
    """The program and what differs from its own defaults, so that it does what the toolkit's service does."""
    argv = [wish.program, "cdi", "generate"]
    vendor, _slash, name = wish.kind.partition("/")
    plain = (("vendor", vendor, "nvidia.com"), ("class", name, "gpu"), ("mode", wish.mode, "auto"))
    argv += [f"--{option}={value}" for option, value, usual in plain if value != usual]
    roots = (("driver-root", wish.driver_root), ("dev-root", wish.dev_root))
    argv += [f"--{option}={value}" for option, value in roots if value]
    if tuple(wish.strategies) != ("index", "uuid"):
        argv += [f"--device-name-strategy={one}" for one in wish.strategies]
    argv += [f"--feature-flag={one}" for one in flags]
    return argv + [f"--disable-hook={one}" for one in wish.disabled_hooks]


def _too_old(version: str, readers: Mapping[str, Version]) -> List[str]:
    """Readers that do not take this format, with their releases."""
    lowest: Dict[str, Version] = {}
    for known, least in READERS.items():
        if _numbers(version) >= _numbers(known):
            lowest = {name: max(number, lowest.get(name, ())) for name, number in least.items()}
    return [
        f"{name} {'.'.join(map(str, readers[name]))}"
        for name in sorted(readers)
        if name in lowest and readers[name] and readers[name] < lowest[name]
    ]


def _numbers(version: str) -> Version:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:3])


def _stat(files: Files) -> Stat:
    def stat(path: str) -> Optional[os.stat_result]:
        try:
            return os.stat(files.root.at(path))
        except (OSError, Failure):
            return None

    return stat


# ---- what is wrong with a specification


def _why(spec: Optional[Spec], text: str, wish: Wish, host: Host, stat: Stat) -> str:
    """Why the file has to be made; "" where it is right."""
    if spec is None:
        return "there is none"
    return next(_faults(spec, text, wish, host, stat), "") if spec.kind else "it cannot be read"


def _faults(spec: Spec, text: str, wish: Wish, host: Host, stat: Stat) -> Iterator[str]:
    if spec.kind != wish.kind:
        yield f"its kind is {spec.kind or 'missing'}, wanted is {wish.kind}"
    if not spec.devices:
        yield "it names no devices"
    if host.driver and spec.driver_versions and host.driver not in spec.driver_versions:
        yield f"it names libraries of driver {', '.join(spec.driver_versions)}, loaded is {host.driver}"
    lacking = _lacking(spec.devices, wish, host)
    if lacking:
        yield f"it does not name {_some(lacking)}"
    gone = [name for name in spec.devices if host.uuids is not None and _is_uuid(name) and name not in host.uuids]
    if gone:
        yield f"it names {_some(gone)}, not there any more"
    if host.driver or wish.mode in _WITHOUT_MODULE:  # without a driver its device files are not there either
        yield from _missing(text, stat)


def _format(version: str, old: Sequence[str]) -> str:
    return f"its format {version} cannot be read by {' and '.join(old)}"


def _newer(output: str, detail: str) -> Finding:
    remedy = f"Upgrade what cannot read it, or the toolkit to 1.19 or newer (which has the feature flag {LOWER})."
    return Finding("cdi_format", WARNING, detail, output, "", remedy)


def _lacking(devices: Sequence[str], wish: Wish, host: Host) -> List[str]:
    wanted = list(wish.names)
    if "uuid" in wish.strategies and host.uuids is not None:
        wanted += host.uuids
    return [name for name in wanted if name not in devices]


def _is_uuid(name: str) -> bool:
    return name.startswith(("GPU-", "MIG-"))


def _missing(text: str, stat: Stat) -> Iterator[str]:
    """Paths of the host that are not there, and device files that now have another number."""
    gone, moved = [], []
    for path, major in _state.host_paths(text).items():
        found = stat(path)
        if found is None:
            gone.append(path)
        elif major is not None and os.major(found.st_rdev) != major:
            moved.append(f"{path} (now {os.major(found.st_rdev)}, there {major})")
    if gone:
        yield f"it names {_some(gone)}, which the host does not have"
    if moved:
        yield f"device files have other numbers: {_some(moved)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# ---- files in the way


def generated(spec: Spec, text: str) -> bool:
    """Whether nvidia-ctk made this file, called by us, by its service or by a person.

    Told by four things together: the name that its service and documentation use, the vendor nvidia.com, hooks of
    NVIDIA's own program, and that there is no comment in it: nvidia-ctk writes none, and people who edit mostly do.
    """
    named = os.path.basename(spec.path) in _OWN_NAMES and spec.kind.startswith("nvidia.com/")
    return bool(named and _HOOKS.search(text) and not _COMMENT.search(text))


def _rivals(files: Files, done: CdiPlan, wish: Wish, host: Host) -> None:
    """Files that name devices of the one file: made ones go, of others a person decides."""
    names = {*wish.names, *(host.uuids or ()), "all", "0", "gpu0"}
    for spec in done.specs:
        names |= set(spec.devices) if spec.path == done.output else set()
    for spec in done.specs:
        if spec.path == done.output or spec.kind != wish.kind or not names & set(spec.devices):
            continue
        one, other = (_state.FOLDERS.index(os.path.dirname(path)) for path in (spec.path, done.output))
        if one == other:
            _clear(files, done, spec, f"it names the same devices as {done.output}: runtimes take neither", ERROR)
        elif one > other:
            _clear(files, done, spec, f"it names the same devices as {done.output}, and hides it", ERROR)
        else:
            _clear(files, done, spec, f"it names the same devices as {done.output}, which hides it", WARNING)


def _clear(files: Files, done: CdiPlan, spec: Spec, reason: str, severity: str) -> None:
    if generated(spec, files.text(spec.path) or ""):
        done.remove.append(spec.path)
        done.actions.append(Action(f"cdi-remove-{len(done.remove)}", "delete", spec.path, reason))
        return
    remedy = "nvidia-ctk did not make it, or somebody edited it: look at it, then remove the file or those devices."
    done.findings.append(Finding("cdi_rival", severity, reason, spec.path, "", remedy))


# ---- acting


def generate(
    runner: Runner, files: Files, planned: CdiPlan, wish: Wish, host: Host, stat: Optional[Stat] = None
) -> Made:
    """Make a new specification beside, and judge it. Nothing that runtimes read is touched.

    A refused one has ``text`` "", and an error that says why and what to do.
    """
    suffix = planned.output[planned.output.rindex(".") :]
    scratch = f"{_SCRATCH}/nvidia{suffix}"
    made_folders = files.make_folder(_SCRATCH, 0o700)
    try:
        files.remove(scratch)
        argv = [*planned.argv, f"--output={files.root.at(scratch)}"]
        ran = runner.run(argv, check=False, timeout=120, env=planned.environment)
        text, said = files.text(scratch) or "", _complaint(ran) if ran.rc else ""
    except CommandFailed as failure:
        text, said = "", failure.msg
    finally:
        files.remove(scratch)
        for folder in reversed(made_folders):
            files.remove_folder(folder)
    return accept(text, said, planned.output, wish, host, stat or _stat(files))


def _complaint(ran: Done) -> str:
    found = _SAID.search(ran.words())
    return found.group(1).replace('\\"', '"').replace("\\n", "; ") if found else ran.words()


def accept(text: str, said: str, output: str, wish: Wish, host: Host, stat: Stat) -> Made:
    """Judge a new specification. ``said``: the complaint of the program that made it, "" where it ended well."""
    why, old = said, []
    if not why:
        try:
            spec = _state.parsed(output, text)
            why = next(_faults(spec, text, wish, host, stat), "")
            old = _too_old(spec.version, host.readers)
        except ValueError as error:
            why = f"it is no specification ({error})"
    if not why:
        return Made(text, [_newer(output, _format(spec.version, old))] if old else [])
    detail = f"the new specification is not taken: {why}; what is there stays"
    remedy = "Run `nvidia-smi -L` and `nvidia-ctk --debug cdi generate` on the host, and see to what they complain of."
    return Made("", [Finding("cdi_refused", ERROR, detail, output, "", remedy)])


def put(files: Files, planned: CdiPlan, text: str) -> bool:
    """Put an accepted specification in its place, readable for all (rootless podman), and remove what is in the way.

    With ``text`` "" nothing is written, and nothing removed unless the one file was to stay as it is anyway.
    """
    changed = False
    if text:
        files.make_folder(os.path.dirname(planned.output))
        changed = files.write(planned.output, text, 0o644)
    elif planned.make:
        return False
    for path in planned.remove:
        changed = files.remove(path) or changed
    return changed
