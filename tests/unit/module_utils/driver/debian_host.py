# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An Ubuntu host with GPUs as a folder: apt, dpkg, DKMS, systemd and the kernel in the small, as far as runs see them.

Its package manager moves one package after another, so that it can be ended in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _catalog
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._run import Outcome, Tools, nvidia_driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import System, Wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import NvmlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done

from ..host_state import trees
from .machine import KERNEL, Machine, said

OLD, NEW = "580.82.07", "580.95.05"
GPUS = ("0000:01:00.0", "0000:02:00.0")
SYSTEM = System("ubuntu", "24.04", ("debian",), "x86_64", KERNEL, "apt")
INITRD = f"/boot/initrd.img-{KERNEL}"
MODULE = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"

PARAMS: dict[str, Any] = {
    "state": "present", "branch": None, "version": None, "flavour": "auto", "source": "auto", "repository": None,
    "use": "compute", "companions": ["auto"], "kernel": None, "apply": "now", "accept": [], "parameters": None,
    "hold": True, "matrix": None, "mok_password": None, "imex_nodes": [], "version_rules": [],
}  # fmt: skip


class Killed(BaseException):
    """The run ends here, as by SIGKILL: nothing of it runs any more."""


def full(version: str) -> str:
    """As NVIDIA's repository for Ubuntu writes it."""
    return f"{version}-0ubuntu1"


def names(version: str, flavour: str = "open", companions: Sequence[str] = ("persistenced",)) -> dict[str, str]:
    """The packages of a driver with their versions, as the catalogue has them."""
    wanted = Wanted(int(version[:3]), version, flavour, "nvidia", "compute", tuple(companions))
    found = _catalog.packages(SYSTEM, wanted)
    return {one.name: full(version) if one.exact else "1.0-1" for one in found.packages if one.role != "headers"}


class DebianHost(Machine):
    """``repository``: package -> versions that there are, newest first; ``installed``, ``held``: dpkg's.

    ``dies_after``: how many packages move until dpkg ends with an error. ``builds``: whether DKMS succeeds;
    ``simulates``: whether apt can do what it is asked to foresee."""

    def __init__(self, root: Path, device: str = "0x2330") -> None:
        files: dict[str, str | bytes] = {
            "/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04 LTS"\n',
            "/proc/sys/kernel/arch": "x86_64\n", "/proc/cmdline": "ro quiet\n",
            "/proc/self/ns/pid": "-> pid:[4026531836]",
            "/usr/bin/apt-get": "", "/usr/sbin/update-initramfs": "", INITRD: "0",
            f"/lib/modules/{KERNEL}/modules.dep": "", f"/lib/modules/{KERNEL}/build/Makefile": "",
            "/sys/kernel/security/lockdown": "[none] integrity confidentiality\n", "/var/lib/dpkg/status": "",
            "/etc/modprobe.d/README": "", "/etc/systemd/system/x": "",
        }  # fmt: skip
        for bus in GPUS:
            files.update(trees.gpu(bus, device, resource="0x01 0x02 0x200\n"))
        super().__init__(root, files)
        self.installed: dict[str, str] = {f"linux-headers-{KERNEL}": "6.8.0-45.45"}
        self.held: set[str] = set()
        self.repository: dict[str, list[str]] = {f"linux-headers-{KERNEL}": ["6.8.0-45.45"]}
        self.mirror: dict[str, list[str]] = {}
        self.units: dict[str, list[str]] = {}  # active, enabled
        self.masked: set[str] = set()
        self.dies_after = -1
        self.builds = True
        self.nvml: Exception = NvmlError(9, "nvmlInit_v2")
        self.pulls: dict[str, tuple[str, ...]] = {}  # dependencies, which come in the newest version
        self.needs: dict[str, str] = {}  # package -> another that cannot be without it
        self.pushes: tuple[str, ...] = ()  # packages that cannot be beside the driver's, and go with it
        self.simulates = True
        self.rebuilt = 0
        self.today = ""
        self.version = ""
        self._status()

    def offer(self, *versions: str, **more: Any) -> DebianHost:
        """Have drivers in the repository."""
        for version in versions:
            for name, one in names(version, **more).items():
                self.repository[name] = sorted({*self.repository.get(name, []), one}, reverse=True)
        return self

    def have(self, version: str, **more: Any) -> DebianHost:
        """Have a driver installed and loaded, its packages not held."""
        self.installed.update(names(version, **more))
        self._changed()
        self._modprobe(["nvidia-uvm"])
        self.units["nvidia-persistenced.service"] = ["active", "enabled"]
        return self

    def go(self, check: bool = False, **params: Any) -> Outcome:
        """A run of the module."""
        tools = Tools(
            runner=self,
            files=lambda root: self.files,
            live=lambda root: True,
            opener=self._no_nvml,
            asks=False,
            today=self.today,
        )  # type: ignore[arg-type]
        return nvidia_driver({**PARAMS, "root": str(self.root), **params}, check, lambda line: None, tools)

    def _no_nvml(self) -> Any:
        raise self.nvml

    def writes(self) -> list[str]:
        """Commands that change the host."""
        asks = re.compile(
            r"dpkg-query|dpkg --print|apt-cache|apt-mark showhold|apt-get install .*-s |apt-get \w+ -s|systemctl show"
            r"|dkms status|rpm -q|gcc|/usr/bin/nvidia-smi|mokutil --test|journalctl"
        )
        return [one for one in self.ran if not asks.match(one)]

    # --- Programs ---------------------------------------------------------------------------------------------------

    def _answer(self, argv: list[str]) -> Done:
        if any(" ".join(argv).startswith(words) for words in self.answers):
            return super()._answer(argv)
        program = argv[0].rpartition("/")[2].replace("-", "_")
        known = getattr(self, f"_run_{program}", None)
        return known(argv[1:]) if known else super()._answer(argv)

    def _run_dpkg_query(self, words: list[str]) -> Done:
        lines = [
            f"{name}\t{self.installed[name]}\t{'h' if name in self.held else 'i'}i \tamd64"
            for name in words[3:] if name in self.installed
        ]  # fmt: skip
        return said("".join(f"{line}\n" for line in lines), rc=0 if len(lines) == len(words[3:]) else 1)

    def _run_dpkg(self, words: list[str]) -> Done:
        if words[:1] == ["--configure"]:
            self._changed()
        return said("amd64\n")

    def _reached(self, probed: bool = False) -> dict[str, list[str]]:
        """What can be had: the host's repository, and the mirror once it is set up or asked by itself."""
        lists = list((self.root / "etc/apt/sources.list.d").glob("*.list"))
        return {**self.repository, **(self.mirror if lists or probed else {})}

    def _run_apt_cache(self, words: list[str]) -> Done:
        have = self._reached(probed=words[0] != "madison")
        found = [(name, one) for name in words[words.index("madison") + 1 :] for one in have.get(name, [])]
        return said("".join(f" {name} | {one} | https://mirror.example.com/ Packages\n" for name, one in found))

    def _run_apt_mark(self, words: list[str]) -> Done:
        if words[0] == "showhold":
            return said("".join(f"{name}\n" for name in sorted(self.held)))
        lacking = [name for name in words[1:] if name not in self.installed]
        if lacking and words[0] == "hold":
            return said(rc=100, err=f"E: Can't select installed nor candidate version from package {lacking[0]}\n")
        self.held = self.held | set(words[1:]) if words[0] == "hold" else self.held - set(words[1:])
        self._status()
        return said()

    def _run_apt_get(self, words: list[str]) -> Done:
        if words[0] == "update":
            return said()
        wanted = [word for word in words[1:] if not word.startswith("-") and ("=" in word or word.endswith("-"))]
        wanted = [word for word in wanted if "::" not in word]
        if words[0] in ("remove", "purge"):
            wanted = [f"{word}-" for word in words[1:] if word in self.installed]
        for word in wanted:
            name, _equals, version = word.partition("=")
            if version and version not in self._reached().get(name, []) and self.installed.get(name) != version:
                return said(rc=100, err=f"E: Version '{version}' for '{name}' was not found\n")
        named = {word.partition("=")[0] for word in wanted}
        pulled = [one for word in wanted for one in self.pulls.get(word.partition("=")[0], ()) if "=" in word]
        wanted += [f"{one}={self.repository[one][0]}" for one in pulled if one not in named | set(self.installed)]
        wanted += [f"{one}-" for one in self.pushes if one in self.installed and _brings_driver(wanted)]
        wanted += [f"{self.needs[word[:-1]]}-" for word in wanted if self.needs.get(word[:-1], "") in self.installed]
        if "-s" in words and not self.simulates:
            return said(rc=100, out=" nvidia-utils-580 : Depends: libx but it is not installable\n", err="E: broken\n")
        if "-s" in words:
            return said("".join(_foreseen(word) for word in wanted))
        if "--download-only" in words:
            return said()
        return self._move(wanted)

    def _move(self, wanted: Sequence[str]) -> Done:
        for number, word in enumerate(wanted):
            if number == self.dies_after:
                self._status()
                return said(rc=100, err="E: Sub-process /usr/bin/dpkg returned an error code (1)\n")
            name, _equals, version = word.partition("=")
            if version:
                self.installed[name] = version
            else:
                self.installed.pop(name[:-1], None)
                self.held.discard(name[:-1])
        self._changed()
        return said()

    def _run_update_initramfs(self, words: list[str]) -> Done:
        self.rebuilt += 1
        place = self.root / INITRD.lstrip("/")
        place.unlink()
        place.write_text(f"{self.rebuilt}")
        return said()

    def _run_systemctl(self, words: list[str]) -> Done:
        verb, units = words[0], words[words.index("--") + 1 :] if "--" in words else []
        if verb == "show":
            blocks = []
            for name in units:
                there = name in self.units
                active, file = self.units.get(name, ["inactive", ""])
                file = "masked-runtime" if name in self.masked else file
                blocks.append(
                    f"LoadState={'loaded' if there else 'not-found'}\nActiveState={active}\nSubState=x\n"
                    f"UnitFileState={file}\nNeedDaemonReload=no\n"
                )
            return said("\n".join(blocks))
        refused = [name for name in units if name in self.masked and verb in ("start", "restart", "enable")]
        if refused:
            return said(rc=1, err=f"Failed to {verb} unit: Unit file /run/systemd/system/{refused[0]} is masked.")
        for name in units:
            if verb in ("start", "restart", "stop"):
                self.units[name][0] = "inactive" if verb == "stop" else "active"
            elif verb in ("enable", "disable"):
                self.units[name][1] = f"{verb}d"
            elif verb in ("mask", "unmask"):
                self.masked = self.masked | {name} if verb == "mask" else self.masked - {name}
        return said()

    def _run_dkms(self, words: list[str]) -> Done:
        if words[0] == "status":
            version = self._dkms()
            return said(f"nvidia/{version}: added\n" if version else "")
        self._build()
        return said()

    def _run_gcc(self, words: list[str]) -> Done:
        return said("gcc (Ubuntu 13.2.0) 13.2.0\n")

    def _run_depmod(self, words: list[str]) -> Done:
        return said()

    def _run_nvidia_modprobe(self, words: list[str]) -> Done:
        return said()

    def _run_nvidia_uninstall(self, words: list[str]) -> Done:
        for name in ("nvidia-uninstall", "nvidia-installer"):
            (self.root / f"usr/bin/{name}").unlink(missing_ok=True)
        return said()

    def _run_nvidia_smi(self, words: list[str]) -> Done:
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _smi

        library = self._dkms()
        if not self.version:
            return said(rc=9, out="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
        if library and library != self.version:
            return said(rc=18, out="Failed to initialize NVML: Driver/library version mismatch\n")
        rows = []
        for number, bus in enumerate(GPUS):
            told = {"index": str(number), "uuid": f"GPU-{number}", "driver_version": self.version, "pci.bus_id": bus}
            rows.append(", ".join(told.get(column, "[N/A]") for column in _smi.COLUMNS))
        return said("\n".join(rows) + "\n")

    # --- What follows from packages -----------------------------------------------------------------------------------

    def _dkms(self) -> str:
        found = [one for name, one in self.installed.items() if name.startswith("nvidia-dkms")]
        return found[0].partition("-")[0] if len(found) == 1 else ""

    def _changed(self) -> None:
        """dpkg's status, the module file, and the programs that packages bring."""
        self._status()
        self._build()
        there = any(name.startswith("nvidia-utils") for name in self.installed)
        smi = self.root / "usr/bin/nvidia-smi"
        if there:
            smi.write_text("")
        else:
            smi.unlink(missing_ok=True)
        if any(name.startswith("nvidia-fabricmanager") for name in self.installed):
            self.units.setdefault("nvidia-fabricmanager.service", ["inactive", "disabled"])
        if any(name.startswith("nvidia-imex") for name in self.installed):
            self.units.setdefault("nvidia-imex.service", ["inactive", "disabled"])
        else:
            self.units.pop("nvidia-imex.service", None)
        if any(name.startswith("nvidia-compute-utils") for name in self.installed):
            self.units.setdefault("nvidia-persistenced.service", ["inactive", "enabled"])
        else:
            self.units.pop("nvidia-persistenced.service", None)

    def _build(self) -> None:
        place = self.root / MODULE.lstrip("/")
        version = self._dkms()
        if not version:
            place.unlink(missing_ok=True)
        elif self.builds:
            open_ = any(re.match(r"nvidia-dkms-.*open|nvidia-dkms-open", name) for name in self.installed)
            licence = "Dual MIT/GPL" if open_ else "NVIDIA"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.module(version=version, license=licence))
        listed = "updates/dkms/nvidia.ko:\n" if place.exists() else ""
        (self.root / f"lib/modules/{KERNEL}/modules.dep").write_text(listed)

    def _status(self) -> None:
        paragraphs = [
            f"Package: {name}\nStatus: {'hold' if name in self.held else 'install'} ok installed\nVersion: {one}\n"
            for name, one in sorted(self.installed.items())
        ]
        (self.root / "var/lib/dpkg/status").write_text("\n".join(paragraphs))

    def _modprobe(self, words: list[str]) -> Done:
        if words[0] not in ("-r", "--quiet") and not (self.root / MODULE.lstrip("/")).exists():
            return said(rc=1, err=f"modprobe: FATAL: Module {words[-1]} not found in directory /lib/modules/{KERNEL}\n")
        was = "nvidia" in self.modules
        done = super()._modprobe(words)
        if "nvidia" in self.modules and not was:
            self._loaded()
        return done

    def _rmmod(self, words: list[str]) -> Done:
        done = super()._rmmod(words)
        if "nvidia" not in self.modules:
            self.version = ""
            (self.root / "proc/driver/nvidia/version").unlink(missing_ok=True)
        return done

    def _loaded(self) -> None:
        self.version = self._dkms()
        open_ = b"GPL" in (self.root / MODULE.lstrip("/")).read_bytes()
        trees.grow(self.root, trees.loaded(self.version, "open" if open_ else "proprietary"))
        for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm"):
            self.put(path, "")
        self._show()


def _brings_driver(wanted: Sequence[str]) -> bool:
    """Whether the driver itself is installed."""
    return any("=" in word and word.startswith("nvidia-dkms") for word in wanted)


def _foreseen(word: str) -> str:
    name, _equals, version = word.partition("=")
    return f"Inst {name} ({version} x [amd64])\n" if version else f"Remv {name[:-1]} [1]\n"
