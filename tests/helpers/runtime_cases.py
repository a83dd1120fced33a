# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forty cases of a runtime's configuration: what is there, what is asked, and what has to hold afterwards.

They are those on which nvidia-ctk is tested, with inputs of our own. ``ours`` says where our answer differs, and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

P = "/usr/bin/nvidia-container-runtime"
RUNC = "io.containerd.runc.v2"
SAME = "the same"
#: Plugin tables by version of the file.
V1, V2, V3 = "plugins.cri", 'plugins."io.containerd.grpc.v1.cri"', 'plugins."io.containerd.cri.v1.runtime"'


@dataclass(frozen=True)
class Case:
    """``text``: the daemon's file, None without one; ``drop_in``: ours or nvidia-ctk's that is there already.

    ``entry``: what the runtime's table has to mean; ``default``: the default runtime afterwards ("" where none is set);
    ``refused``: part of the message where nothing may be changed; ``daemons``: versions of containerd it is judged on.
    """

    number: int
    title: str
    kind: str
    text: str | None = None
    drop_in: str | None = None
    set_default: bool | None = None
    cdi: bool = False
    name: str = "nvidia"
    program: str = P
    entry: Mapping[str, Any] = field(default_factory=dict)
    default: str = ""
    refused: str = ""
    daemons: tuple[tuple[int, int], ...] = ((1, 6), (1, 7), (2, 4))
    ours: str = SAME


def plain(**more: Any) -> dict[str, Any]:
    """A containerd runtime with nothing but our program, and ``more`` options."""
    return {"runtime_type": RUNC, "options": {"BinaryName": P, **more}}


def runtime(name: str, version: str = V2, options: str = "", **keys: str) -> str:
    """A runtime's table as text."""
    lines = [f"[{version}.containerd.runtimes.{name}]", *(f"  {key} = {value}" for key, value in keys.items())]
    return "\n".join([*lines, f"  [{version}.containerd.runtimes.{name}.options]", f"    {options}"]) + "\n"


def chosen(name: str, version: str = V2) -> str:
    """The default runtime as text."""
    return f'[{version}.containerd]\n  default_runtime_name = "{name}"\n'


HEAD2, HEAD3 = "# kept by hand\nversion = 2\n", "# kept by hand\nversion = 3\n"
CUSTOM = '"io.containerd.custom.v1"'
NEW = ((2, 4),)

CASES = [
    Case(1, "no file", "containerd", entry=plain()),
    Case(2, "an empty file, made the default", "containerd", "", set_default=True, entry=plain(), default="nvidia"),
    Case(
        3,
        "copied from runc",
        "containerd",
        HEAD2
        + runtime("runc", options="SystemdCgroup = true", runtime_type=CUSTOM, privileged_without_host_devices="true"),
        entry={
            "runtime_type": "io.containerd.custom.v1",
            "privileged_without_host_devices": True,
            "options": {"BinaryName": P, "SystemdCgroup": True},
        },
    ),
    Case(
        4,
        "runc has a program of its own",
        "containerd",
        HEAD2 + runtime("runc", options='BinaryName = "/usr/bin/runc"', runtime_type=f'"{RUNC}"'),
        entry=plain(),
    ),
    Case(5, "runc without a type", "containerd", HEAD2 + runtime("runc", runtime_type='""'), entry=plain()),
    Case(
        6,
        "copied from the default runtime",
        "containerd",
        HEAD2 + chosen("other") + runtime("other", options='Root = "/x"', runtime_type=f'"{RUNC}"'),
        entry=plain(Root="/x"),
        default="other",
    ),
    Case(
        7,
        "the default runtime, and not runc",
        "containerd",
        HEAD2
        + chosen("other")
        + runtime("other", options='Root = "/x"', runtime_type=f'"{RUNC}"')
        + runtime("runc", options="SystemdCgroup = true", runtime_type=f'"{RUNC}"'),
        entry=plain(Root="/x"),
        default="other",
    ),
    Case(
        8,
        "an old path, as the default",
        "containerd",
        HEAD2
        + chosen("nvidia")
        + runtime("nvidia", options='BinaryName = "/old/nvidia"', runtime_type=f'"{RUNC}"')
        + runtime("runc", options="SystemdCgroup = true", runtime_type=f'"{RUNC}"'),
        set_default=True,
        entry=plain(SystemdCgroup=True),
        default="nvidia",
    ),
    Case(
        9,
        "the default no longer",
        "containerd",
        HEAD2
        + chosen("nvidia")
        + runtime("nvidia", options=f'BinaryName = "{P}"', runtime_type=f'"{RUNC}"')
        + runtime("runc", runtime_type=f'"{RUNC}"'),
        set_default=False,
        entry=plain(),
        default="runc",
        ours="runc by name: the drop-in has to override the other file",
    ),
    Case(
        10,
        "other imports",
        "containerd",
        HEAD2 + 'imports = ["/foo/bar/*.toml"]\n' + runtime("runc", runtime_type=f'"{RUNC}"'),
        entry=plain(),
    ),
    Case(11, "no file, by a drop-in", "containerd", entry=plain()),
    Case(
        12,
        "a full file, with CDI",
        "containerd",
        HEAD2
        + chosen("runc")
        + runtime("runc", options="SystemdCgroup = true", runtime_type=f'"{RUNC}"')
        + f'[{V2}.registry]\n  config_path = "/opt/certs.d"  # mirrors\n'
        + '[plugins."io.containerd.internal.v1.opt"]\n  path = "/opt/containerd"\n',
        cdi=True,
        entry=plain(SystemdCgroup=True),
        default="runc",
        daemons=((1, 7), (2, 4)),
    ),
    Case(
        13,
        "an old path in the file",
        "containerd",
        HEAD2
        + chosen("nvidia")
        + runtime("nvidia", options='BinaryName = "/old/nvidia-container-runtime"', runtime_type=f'"{RUNC}"')
        + runtime("runc", runtime_type=f'"{RUNC}"'),
        set_default=True,
        entry=plain(),
        default="nvidia",
    ),
    Case(14, "format 3", "containerd", HEAD3, entry=plain(), daemons=NEW),
    Case(
        15,
        "format 3, copied from runc",
        "containerd",
        HEAD3 + runtime("runc", V3, "SystemdCgroup = true", runtime_type=f'"{RUNC}"'),
        set_default=True,
        entry=plain(SystemdCgroup=True),
        default="nvidia",
        daemons=NEW,
    ),
    Case(16, "format 4", "containerd", "# kept by hand\nversion = 4\n", entry=plain(), daemons=NEW),
    Case(
        17,
        "format 1",
        "containerd",
        "# kept by hand\nversion = 1\n"
        + runtime("runc", V1, 'Runtime = "/usr/bin/runc"', runtime_type='"io.containerd.runtime.v1.linux"'),
        entry={"runtime_type": "io.containerd.runtime.v1.linux", "options": {"BinaryName": P, "Runtime": P}},
        daemons=((1, 6),),
    ),
    Case(
        18,
        "format 1, copied from the default runtime",
        "containerd",
        "# kept by hand\n"
        + chosen("custom", V1)
        + runtime("custom", V1, 'Root = "/x"', runtime_type=f'"{RUNC}"')
        + runtime("runc", V1, "", runtime_type=f'"{RUNC}"'),
        entry=plain(Root="/x"),
        default="custom",
        daemons=((1, 6), (1, 7)),
    ),
    Case(
        19,
        "no CRI",
        "containerd",
        '# of Docker\ndisabled_plugins = ["cri"]\n',
        ours="nothing is written, a finding says that Docker alone uses it; nvidia-ctk writes what is never read",
    ),
    Case(20, "a version that is no number", "containerd", 'version = "2"\n', refused="version is '2'"),
    Case(
        21,
        "another name and path",
        "containerd",
        HEAD2 + runtime("runc", runtime_type=f'"{RUNC}"'),
        name="gpu",
        program="/opt/x/nvidia-container-runtime",
        entry={"runtime_type": RUNC, "options": {"BinaryName": "/opt/x/nvidia-container-runtime"}},
    ),
    Case(22, "given back: nothing but ours", "containerd", entry=plain(), set_default=True, default="nvidia"),
    Case(
        23, "check mode writes nothing", "containerd", HEAD2 + runtime("runc", runtime_type=f'"{RUNC}"'), entry=plain()
    ),
    Case(
        24,
        "an empty object",
        "docker",
        "{}",
        entry={"path": P},
        ours="the whole path, so that the daemon's search path does not decide",
    ),
    Case(25, "another default stays", "docker", '{"default-runtime": "X"}', entry={"path": P}, default="X"),
    Case(
        26,
        "made the default",
        "docker",
        '{"default-runtime": "X"}',
        set_default=True,
        entry={"path": P},
        default="nvidia",
    ),
    Case(
        27,
        "everything else stays",
        "docker",
        '{\n  "runtimes": {"kata": {"path": "/k"}},\n  "exec-opts": ["native.cgroupdriver=systemd"],\n'
        '  "log-opts": {"max-size": "100m"}\n}\n',
        entry={"path": P},
        ours="the same content; nvidia-ctk sorts keys and indents anew",
    ),
    Case(
        28,
        "an old path",
        "docker",
        '{"runtimes": {"nvidia": {"path": "old", "args": ["--x"]}}}',
        entry={"path": P, "args": ["--x"]},
        ours="arguments that somebody gave stay",
    ),
    Case(
        29,
        "given back",
        "docker",
        json.dumps({"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": P}}}),
        set_default=False,
        entry={"path": P},
        default="runc",
        ours="the default that was there before comes back, runc where that is not known",
    ),
    Case(
        30,
        "other features stay",
        "docker",
        '{"features": {"buildkit": true}}',
        cdi=True,
        entry={"path": P},
    ),
    Case(31, "no drop-ins", "docker", "{}", entry={"path": P}, ours="drop_in of docker is refused, too"),
    Case(32, "nothing to copy", "crio", "", entry={"runtime_path": P, "runtime_type": "oci"}),
    Case(
        33,
        "made the default",
        "crio",
        "",
        set_default=True,
        entry={"runtime_path": P, "runtime_type": "oci"},
        default="nvidia",
    ),
    Case(
        34,
        "copied from crun",
        "crio",
        '# of the distribution\n[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\n'
        'runtime_path = "/usr/libexec/crio/crun"\nruntime_root = "/run/crun"\n'
        'monitor_path = "/usr/libexec/crio/conmon"\n'
        'allowed_annotations = ["io.containers.trace-syscall"]\n',
        entry={
            "runtime_path": P,
            "runtime_type": "oci",
            "runtime_root": "/run/crun",
            "monitor_path": "/usr/libexec/crio/conmon",
            "allowed_annotations": ["io.containers.trace-syscall"],
        },
        default="crun",
    ),
    Case(
        35,
        "from the default alone",
        "crio",
        '[crio.runtime]\ndefault_runtime = "other"\n[crio.runtime.runtimes.other]\nruntime_root = "/run/other"\n'
        '[crio.runtime.runtimes.runc]\nmonitor_path = "/usr/bin/conmon"\n',
        entry={"runtime_path": P, "runtime_type": "oci", "runtime_root": "/run/other"},
        default="other",
    ),
    Case(
        36,
        "the default no longer",
        "crio",
        '[crio.runtime.runtimes.crun]\nruntime_root = "/run/crun"\n',
        drop_in='[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n'
        f'runtime_path = "{P}"\nruntime_type = "oci"\n',
        set_default=False,
        entry={"runtime_path": P, "runtime_type": "oci", "runtime_root": "/run/crun"},
        default="crun",
        ours="CRI-O's own runtime is the default by name, and the entry is brought in line with it",
    ),
    Case(37, "CDI is always on", "crio", "", cdi=True, entry={"runtime_path": P, "runtime_type": "oci"}),
    Case(38, "an unknown runtime", "foo", refused="'foo' is no runtime"),
    Case(39, "no-cgroups", "config.toml"),
    Case(40, "a list of runtimes", "config.toml"),
]
