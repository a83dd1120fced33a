# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit's packages: NVIDIA's names, relations, paths and scripts by what is known of them, and no more.

``nvidia-ctk`` is the real program, which the caller has from ``programs.ensure("nvidia-ctk")``. For the rest something
stands in: ``nvidia-container-runtime`` writes its arguments down and runs runc; the others only say their names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import compiler
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Content, Package, call
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError

NAMES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
VERSIONS = ("1.17.4", "1.17.8", "1.19.1", "1.20.2")
CALLS = "/var/log/nvidia-container-runtime.calls"

RUNTIME = f"""#!/bin/sh
echo "$@" >>{CALLS}
exec runc "$@"
"""
REFRESH = """[Unit]
Description=CDI specification of the GPUs
ConditionPathExists=/usr/bin/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk

[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecStart=/usr/bin/nvidia-ctk cdi generate

[Install]
WantedBy=multi-user.target
"""
WATCH = """[Unit]
Description=Makes the CDI specification anew when the driver changes

[Path]
PathChanged=/usr/bin/nvidia-ctk
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/lib/modules/%v/modules.dep.bin

[Install]
WantedBy=multi-user.target
"""
CONFIGURE = """mkdir -p /etc/nvidia-container-runtime
nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
"""
ENABLE = """if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl --quiet enable nvidia-cdi-refresh.path nvidia-cdi-refresh.service
    systemctl start nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true
fi
"""
DISABLE = """if [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service
fi
"""


def packages(programs: Mapping[str, Path], versions: Sequence[str] = VERSIONS, kind: str = "deb") -> list[Package]:
    """All four at each version, for ``deb`` or ``rpm``. ``programs``: nvidia-ctk and, where built, nvidia-cdi-hook."""
    if not programs.get("nvidia-ctk", Path("/nonexistent")).is_file():
        raise ProgramError(
            "The toolkit's packages hold the real nvidia-ctk, and no file of it was given. Build it: "
            "programs.ensure('nvidia-ctk')"
        )
    made = []
    for version in versions:
        numbers = tuple(int(part) for part in version.split("."))
        made += [_toolkit(version, numbers), _base(version, numbers, programs, kind), *_library(version, numbers, kind)]
    return made


def obsolete() -> list[Package]:
    """What NVIDIA published before: two packages that only bring others."""
    return [
        Package(
            "nvidia-docker2", "2.14.0",
            depends=(("nvidia-container-toolkit", ">=", "1.13.0-1"),),
            files={
                "/etc/docker/daemon.json": (b'{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\n', 0o644),
                "/usr/bin/nvidia-docker": _says("nvidia-docker"),
            },
            config=("/etc/docker/daemon.json",),
        ),
        Package(
            "nvidia-container-runtime", "3.14.0",
            depends=(("nvidia-container-toolkit", ">=", "1.14.0-1"), ("nvidia-container-toolkit", "<<", "2.0.0")),
            files={"/usr/share/doc/nvidia-container-runtime/README": (b"Brings the toolkit.\n", 0o644)},
        ),
    ]  # fmt: skip


def _toolkit(version: str, numbers: tuple[int, ...]) -> Package:
    return Package(
        "nvidia-container-toolkit",
        version,
        depends=(
            ("nvidia-container-toolkit-base", "=", f"{version}-1"),
            *_siblings("libnvidia-container-tools", version, numbers),
        ),
        files={"/usr/bin/nvidia-container-runtime-hook": _says("nvidia-container-runtime-hook")},
    )


def _base(version: str, numbers: tuple[int, ...], programs: Mapping[str, Path], kind: str) -> Package:
    hook = programs.get("nvidia-cdi-hook")
    files: dict[str, Content] = {
        "/usr/bin/nvidia-ctk": (programs["nvidia-ctk"], 0o755),
        "/usr/bin/nvidia-cdi-hook": (hook, 0o755) if hook else _says("nvidia-cdi-hook"),
        "/usr/bin/nvidia-container-runtime": (RUNTIME.encode(), 0o755),
    }
    if numbers < (1, 18):
        return Package("nvidia-container-toolkit-base", version, files=files, after=CONFIGURE)
    environment = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
    usual = "/lib/systemd/system" if kind == "deb" else "/usr/lib/systemd/system"
    units = usual if numbers >= (1, 20) else "/etc/systemd/system"
    files |= {
        environment: (b"# Settings of nvidia-ctk cdi generate\n", 0o644),
        f"{units}/nvidia-cdi-refresh.service": (REFRESH.encode(), 0o644),
        f"{units}/nvidia-cdi-refresh.path": (WATCH.encode(), 0o644),
    }
    if kind == "rpm":
        preset = b"enable nvidia-cdi-refresh.path\nenable nvidia-cdi-refresh.service\n"
        files["/usr/lib/systemd/system-preset/90-nvidia-container-toolkit.preset"] = (preset, 0o644)
    return Package(
        "nvidia-container-toolkit-base", version, files=files, config=(environment,), after=CONFIGURE + ENABLE,
        before_removal=DISABLE,
    )  # fmt: skip


def _library(version: str, numbers: tuple[int, ...], kind: str) -> list[Package]:
    folder = "/usr/lib/x86_64-linux-gnu" if kind == "deb" else "/usr/lib64"
    return [
        Package(
            "libnvidia-container-tools",
            version,
            depends=_siblings("libnvidia-container1", version, numbers),
            files={"/usr/bin/nvidia-container-cli": _says("nvidia-container-cli")},
        ),
        Package(
            "libnvidia-container1",
            version,
            files={f"{folder}/libnvidia-container.so.{version}": (_library_file(), 0o644)},
        ),
    ]


def _siblings(name: str, version: str, numbers: tuple[int, ...]) -> tuple[tuple[str, str, str], ...]:
    """Since 1.18 the others have to be of the very same version."""
    if numbers >= (1, 18):
        return ((name, "=", f"{version}-1"),)
    return ((name, ">=", f"{version}-1"), (name, "<<", "2.0.0"))


def _says(name: str) -> Content:
    return f"#!/bin/sh\necho '{name} of the testbed' >&2\nexit 1\n".encode(), 0o755


@lru_cache(maxsize=1)
def _library_file() -> bytes:
    """A library with nothing in it, which ldconfig takes for one."""
    with tempfile.TemporaryDirectory() as scratch:
        source, library = Path(scratch) / "a.c", Path(scratch) / "a.so"
        source.write_text("int testbed_stand_in;\n")
        soname = "-Wl,-soname,libnvidia-container.so.1,--build-id=none"
        call([compiler(), "-shared", "-fPIC", soname, "-o", library, "a.c"], cwd=scratch)
        return library.read_bytes()
