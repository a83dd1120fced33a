# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""k3s and RKE2 write containerd's configuration anew at each start, from a template if there is one.

Without a template they find the NVIDIA runtime by themselves, under the name ``nvidia`` and in a few folders, so that a
restart is all they need. A template gets a block of our own between two marks.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, Optional, Tuple

from ._containerd import RUNC
from ._toml import TomlError, dumps, parse
from ._types import Proposal, Reader, Wanted, at, table

_BEGIN, _END = "# gpufleet.nvidia: begin", "# gpufleet.nvidia: end"
_BLOCK = re.compile(rf"\n?^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}$\n?", re.DOTALL | re.MULTILINE)
_BASE = re.compile(r'\{\{-?\s*template\s+"base"\s+\.\s*-?\}\}')
# Templates, and the plugin that has the runtimes in each: of containerd 1 and 2.
_TEMPLATES = {
    2: ("config.toml.tmpl", "io.containerd.grpc.v1.cri"),
    3: ("config-v3.toml.tmpl", "io.containerd.cri.v1.runtime"),
}
_SEEN = ("/usr/local/nvidia/toolkit", "/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/bin", "/sbin")


def generated_text(reader: Reader, path: str) -> str:
    """What the last start wrote."""
    return reader.text(path) or ""


def generated(reader: Reader, path: str) -> Tuple[Dict[str, Any], str, int]:
    """Runtimes, the default one, and the format of the file written at the last start; version 0 without one."""
    text = reader.text(path)
    try:
        data = parse(text) if text else {}
    except TomlError:
        data = {}
    version = data.get("version", 2 if data else 0)
    containerd = table(at(data, "plugins", _TEMPLATES.get(version, _TEMPLATES[2])[1], "containerd"))
    return table(containerd.get("runtimes")), str(containerd.get("default_runtime_name") or ""), version


def plan(reader: Reader, config: str, wanted: Wanted, product: str) -> Proposal:
    """What k3s or RKE2 needs besides a restart: a block in the template that is there, a template where the runtime
    would not be found, and the default runtime in a file of its own settings."""
    proposal = Proposal()
    _runtimes, default, version = generated(reader, config)
    if wanted.default is True and default != wanted.name:
        proposal.earlier = default
    folder = posixpath.dirname(config)
    for number, (name, plugin) in _TEMPLATES.items():
        path = posixpath.join(folder, name)
        text = reader.text(path)
        if text is None and (number != (version or 3) or _found_by_itself(wanted)):
            continue
        proposal.change(path, text, _with_block(text, plugin, wanted), "gives the runtime")
    _default(reader, product, wanted, proposal)
    return proposal


def has_block(text: str) -> bool:
    """Whether a template has our block."""
    return bool(_BLOCK.search(text))


def without_block(text: str) -> Optional[str]:
    """A template without our block; None where nothing else was in it."""
    bare = _BLOCK.sub("", text)
    return bare if _BASE.sub("", bare).strip() else None


def _found_by_itself(wanted: Wanted) -> bool:
    folder, name = posixpath.split(wanted.program)
    return wanted.name == "nvidia" and name == "nvidia-container-runtime" and folder in _SEEN


def _with_block(text: Optional[str], plugin: str, wanted: Wanted) -> Optional[str]:
    """The template with our block, or without one where it needs none."""
    if text is None:
        return f'{{{{ template "base" . }}}}\n{_block(plugin, wanted)}'
    bare = _BLOCK.sub("", text)
    if _BASE.search(bare) and _found_by_itself(wanted):
        return bare
    said = "\n".join(line for line in bare.splitlines() if not line.lstrip().startswith("#"))
    by_itself = "NvidiaRuntimes" in said and _found_by_itself(wanted)
    if by_itself or (re.search(rf'runtimes\."?{re.escape(wanted.name)}"?\]', said) and wanted.program in said):
        return bare  # the template gives it already, in a way of its own
    return bare.rstrip("\n") + "\n\n" + _block(plugin, wanted)


def _block(plugin: str, wanted: Wanted) -> str:
    options: Dict[str, Any] = {"BinaryName": wanted.program}
    if wanted.systemd_cgroup:
        options["SystemdCgroup"] = True
    entry = {"runtime_type": RUNC, "options": options}
    content = dumps({"plugins": {plugin: {"containerd": {"runtimes": {wanted.name: entry}}}}})
    return f"{_BEGIN}\n{content.strip()}\n{_END}\n"


def _default(reader: Reader, product: str, wanted: Wanted, proposal: Proposal) -> None:
    path = f"/etc/rancher/{product}/config.yaml.d/99-gpufleet.yaml"
    line = f"default-runtime: {wanted.name}\n"
    text = reader.text(path)
    if wanted.default is True:
        proposal.change(path, text, line, "makes it the default runtime")
    elif wanted.default is False and text == line:
        proposal.change(path, text, None, "takes the default runtime away")
