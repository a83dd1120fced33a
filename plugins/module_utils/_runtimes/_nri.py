# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface for NRI plugins. The NVIDIA plugin gives containers their devices over it, so that runtimes need no
NVIDIA runtime: all that they need is the interface, which containerd 2 has on by itself and 1.7 has off."""

from __future__ import annotations

import copy
import socket
from typing import Any, Dict, List, Mapping, Optional

from .._plan import ERROR, INFO, Finding
from . import _containerd, _crio
from ._find import Target
from ._rancher import generated_text
from ._toml import Toml, TomlError, dumps, parse
from ._types import HEADER, Broken, Proposal, Reader, Wanted, at, overlaid, table

PLUGIN = "io.containerd.nri.v1.nri"
SOCKET = "/var/run/nri/nri.sock"
_KNOWN, _ON = (1, 7), (2, 0)  # of containerd
_CRIO_KNOWN = (1, 26)
_WHY = "serves NRI plugins"
_RANCHER = ("k3s", "rke2")


def plan(reader: Reader, target: Target, places: _containerd.Places, merged: Optional[Mapping[str, Any]]) -> Proposal:
    """What a runtime needs for NRI plugins. ``merged``: its configuration by its own word. Raises Broken."""
    if target.name in ("docker", "podman"):
        return _told("runtime_without_nri", INFO, target, "it serves no NRI plugins, so it is left as it is")
    if target.name in _RANCHER:
        return _rancher(reader, target)
    if target.name == "crio":
        return _crio_plan(reader, target, merged)
    return _Containerd(reader, target, places, merged).plan()


def off(merged: Mapping[str, Any], name: str) -> bool:
    """Whether a daemon's own merged configuration has the interface off."""
    if name == "crio":
        return at(merged, "crio", "nri", "enable_nri") is not True
    return at(merged, "plugins", PLUGIN, "disable") is not False


def socket_of(merged: Optional[Mapping[str, Any]], name: str) -> str:
    """Where it serves plugins."""
    said = at(merged or {}, *(("crio", "nri", "nri_listen") if name == "crio" else ("plugins", PLUGIN, "socket_path")))
    return said if isinstance(said, str) and said else SOCKET


def lacks(path: str) -> str:
    """What is missing at the socket; "" where somebody answers there."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(5)
            one.connect(path)
    except OSError as error:
        return f"nobody serves NRI plugins at {path}: {error.strerror or error}"
    return ""


def _told(id: str, severity: str, target: Target, detail: str, remedy: str = "") -> Proposal:
    return Proposal(findings=[Finding(id, severity, detail, target.name, "nri", remedy)])


class _Containerd:
    """A containerd: its own, or that of microk8s or k0s."""

    def __init__(
        self, reader: Reader, target: Target, places: _containerd.Places, merged: Optional[Mapping[str, Any]]
    ) -> None:
        self._reader, self._target, self._places = reader, target, places
        self._planner = _containerd.Planner(reader, places, Wanted(), target.version, {}, "")
        self._on_by_itself = (target.version or ((2, 0) if self._planner.version > 2 else (1, 7))) >= _ON
        self._off = off(merged, target.name) if merged is not None else not self._is_on(self._planner.all)

    def plan(self) -> Proposal:
        target, version = self._target, self._target.version
        if version and version < _KNOWN:
            words = f"containerd {version[0]}.{version[1]} knows no NRI"
            return _told("runtime_without_nri", ERROR, target, words, "Use containerd 1.7 or newer, or leave nri out")
        ours = [one for one in self._planner.all if one.text.startswith(HEADER)]
        if not self._off and not any(_containerd.effective([one], version).runtimes for one in ours):
            return Proposal()
        if self._planner.version == 1:
            raise Broken(f"{self._places.config} is of format 1, which cannot name the plugin of NRI. Write version 2.")
        changes = self._changes()
        after = _containerd.load(_containerd.Changed(self._reader, changes), self._places)
        if not self._is_on(after):
            paths = ", ".join(one.path for one in after)
            return _told("nri_overridden", ERROR, target, f"another file that is imported later has it off: {paths}")
        proposal = Proposal()
        for path, text in changes.items():
            reason = "has the daemon read the drop-in" if path == self._places.config else _WHY
            proposal.change(path, self._reader.text(path), text, reason if self._places.drop_in else _WHY)
        return proposal

    def _is_on(self, documents: List[_containerd.Document]) -> bool:
        said = self._said(documents).get("disable")
        return said is False or (said is None and self._on_by_itself)

    def _said(self, documents: List[_containerd.Document]) -> Dict[str, Any]:
        """What files say of the plugin; before 2.1 the last one that names it counts alone."""
        found: Dict[str, Any] = {}
        for one in documents:
            own = at(one.toml.data, "plugins", PLUGIN)
            if isinstance(own, dict):
                merges = bool(self._target.version and self._target.version >= (2, 1))
                found = overlaid(found, own) if merges else own
        return found

    def _changes(self) -> Dict[str, Optional[str]]:
        path = self._places.drop_in
        others = [one for one in self._planner.all if not one.text.startswith(HEADER)]
        content = dict(copy.deepcopy(self._said(others)), disable=False)
        if not path:
            toml = Toml(self._reader.text(self._places.config) or "")
            if not toml.data:
                toml.set(["version"], self._planner.version)
            toml.set(["plugins", PLUGIN], content)
            return {self._places.config: toml.text()}
        whole = {"version": self._planner.version, "plugins": {PLUGIN: content}}
        changes: Dict[str, Optional[str]] = {path: self._planner.text_of(path, whole)}
        for one in self._planner.all:
            if one.path != path and one.text.startswith(HEADER):
                changes[one.path] = None
        if not self._planner.reads(path):
            changes[self._places.config] = self._planner.with_import(path)
        return changes


def _crio_plan(reader: Reader, target: Target, merged: Optional[Mapping[str, Any]]) -> Proposal:
    version = target.version
    if version and version < _CRIO_KNOWN:
        words = f"CRI-O {version[0]}.{version[1]} knows no NRI"
        return _told("runtime_without_nri", ERROR, target, words, "Use CRI-O 1.26 or newer, or leave nri out")
    documents = _crio.load(reader, target.config, target.drop_in)
    there = reader.text(target.drop_in)
    ours = (there or "").startswith(HEADER)
    said: Dict[str, Any] = {}
    for _path, data in documents:
        said = {**said, **table(at(data, "crio", "nri"))}
    now = not off(merged, "crio") if merged is not None else said.get("enable_nri") is True
    if now and not (ours and at(Toml(there or "").data, "crio", "runtime")):
        return Proposal()
    content = {"crio": {"nri": {"enable_nri": True}}}
    after = HEADER + "\n" + dumps(content)
    if there is not None and not ours:
        toml = Toml(there)
        toml.set(["crio"], content["crio"])
        after = toml.text()
    proposal = Proposal()
    proposal.change(target.drop_in, there, after, _WHY)
    later = [
        path for path, data in documents if path > target.drop_in and at(data, "crio", "nri", "enable_nri") is False
    ]
    if later:
        detail = f"{later[0]} is read later and has it off"
        proposal.findings.append(Finding("nri_overridden", ERROR, detail, "crio", later[0], "Take it out of that file"))
    return proposal


def _rancher(reader: Reader, target: Target) -> Proposal:
    """Their containerd is configured by a template; with containerd 2 nothing is to be done."""
    try:
        data = parse(generated_text(reader, target.config))
    except TomlError:
        data = {}
    said = at(data, "plugins", PLUGIN, "disable")
    if said is False or (said is None and int(data.get("version", 3)) > 2):
        return Proposal()
    detail = f"{target.config}, which it writes at each start, has the interface for NRI plugins off"
    remedy = f"Use a release with containerd 2, or a template with plugins.'{PLUGIN}'.disable = false"
    return _told("nri_off_in_template", ERROR, target, detail, remedy)
