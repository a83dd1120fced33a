# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of hosts: a Debian root from debootstrap, made once, and kept in podman's storage by its recipe.

Systems with more on them are the plain ones and one layer of packages.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import LIMITS, HostError, Report, podman, prepare
from ansible_collections.gpufleet.nvidia.tests.testbed.processes import _die_with_starter
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import cache_dir, locked, say

REPOSITORY = "localhost/gpufleet-host"
PACKAGES = (
    *("ca-certificates", "dbus", "iproute2", "kmod", "openssh-server", "pciutils", "procps", "python3", "sudo"),
    *("systemd", "systemd-sysv"),
)
#: A user as administrators have one: no password, may become root.
USER = "admin"
FILES = {
    "etc/apt/apt.conf.d/90hosts": 'APT::Install-Recommends "false";\nDPkg::Lock::Timeout "60";\n',
    "etc/ssh/sshd_config.d/hosts.conf": "UseDNS no\nPermitRootLogin prohibit-password\n",
    "etc/sudoers.d/admin": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
}
# Modules are the machine's own affair (systemd 257 is degraded for it), and so are consoles: where the machine's show
# in the container, a getty finds no terminal to open and fails. The others write files when nobody asked.
MASKED = (
    *("getty.target", "getty@.service", "serial-getty@.service", "console-getty.service", "container-getty@.service"),
    *("systemd-modules-load.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer"),
    *("e2scrub_all.timer", "fstrim.timer", "systemd-tmpfiles-clean.timer"),
)
SCRIPT = f"""
set -eu
useradd --create-home --shell /bin/bash {USER}
chmod 0440 /etc/sudoers.d/admin
rm -f /etc/ssh/ssh_host_*_key* /etc/hostname /etc/resolv.conf
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/*.log /var/cache/ldconfig
: > /etc/machine-id
"""


# Container runtimes, and what a Kubernetes node needs beside one.
RUNTIMES = (
    *("busybox-static", "conntrack", "containerd", "containernetworking-plugins", "docker.io", "ethtool", "iptables"),
    *("podman", "runc", "socat"),
)
# What Docker needs to run without root, and a user to have a systemd of their own.
ROOTLESS = ("dbus-user-session", "libpam-systemd", "rootlesskit", "uidmap")
# Debian's package of dnf's plugins breaks zypper, so each has a system of its own.
RPM = ("createrepo-c", "gnupg", "rpm")
# What a driver's kernel module is built with. The headers' kernel is not the one that runs: that is the machine's.
DRIVERS = ("dkms", "gcc", "initramfs-tools", "linux-headers-amd64", "make", "unattended-upgrades")
# Debian's own packages of the driver, for computing.
NONFREE = (
    *("firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-persistenced"),
    "nvidia-smi",
)
# No container runs inside on a disk that is an overlay itself.
RUNTIMES_VOLUMES = ("/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/kubelet")
# Whoever needs a runtime starts it: hosts boot faster without, and then it is known which ones run.
MORE = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -o DPkg::Options::=--force-unsafe-io install --yes --no-install-recommends $PACKAGES
for unit in $(systemctl list-unit-files --state=enabled --no-legend --plain 'containerd*' 'docker*' 'podman*' |
    cut -d ' ' -f 1)
do
    systemctl --quiet disable "$unit"
done
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/ldconfig
: > /etc/machine-id
"""
# Packages in the two newest versions that the archive has: downloaded, not installed. apt's lists stay, so that hosts
# need no network and see the same archive as long as the image is kept.
ARCHIVE = """
set -eu
. /etc/os-release
mirror=$(awk '$1 == "deb" { print $2; exit }' /etc/apt/sources.list)
for place in "$mirror $VERSION_CODENAME" "$mirror-security $VERSION_CODENAME-security"
do
    echo "deb $place main contrib non-free non-free-firmware"
done >/etc/apt/sources.list.new
mv /etc/apt/sources.list.new /etc/apt/sources.list
apt-get -qq update
for version in $(apt-cache madison nvidia-kernel-dkms | awk '{ print $3 }' | sort -uV | tail -n 2)
do
    printf 'Package: *nvidia* *cuda*\\nPin: version %s\\nPin-Priority: 1001\\n' "$version" >/run/pins
    apt-get -qq -o Dir::Etc::preferences=/run/pins install --download-only --yes --no-install-recommends $PACKAGES
done
"""


@dataclass(frozen=True)
class System:
    """An operating system that hosts can have. One with a ``base`` is that system after a ``script`` for more
    ``packages``: it installs them, unless it is another one."""

    name: str
    title: str
    suite: str = ""
    base: str = ""
    packages: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    script: str = MORE

    def key(self) -> str:
        """What the image is made from, as 16 hexadecimal digits."""
        if self.base:
            recipe = repr((SYSTEMS[self.base].key(), self.packages, self.script))
        else:
            recipe = repr((self.suite, PACKAGES, sorted(FILES.items()), MASKED, SCRIPT))
        return hashlib.sha256(recipe.encode()).hexdigest()[:16]

    def image(self) -> str:
        """The image's name in our storage."""
        return f"{REPOSITORY}:{self.name}-{self.key()}"


SYSTEMS = {
    system.name: system
    for system in (
        System("debian12", "Debian 12", "bookworm"),
        System("debian13", "Debian 13", "trixie"),
        System(
            "debian12-runtimes", "Debian 12 with runtimes", base="debian12", packages=RUNTIMES, volumes=RUNTIMES_VOLUMES
        ),
        System(
            "debian13-runtimes", "Debian 13 with runtimes", base="debian13", packages=(*RUNTIMES, "docker-cli"),
            volumes=RUNTIMES_VOLUMES,
        ),
        System(
            "debian13-rootless", "Debian 13 with Docker for users", base="debian13-runtimes", packages=ROOTLESS,
            volumes=RUNTIMES_VOLUMES,
        ),
        System("debian12-dnf", "Debian 12 with dnf", base="debian12", packages=(*RPM, "dnf", "dnf-plugins-core")),
        System("debian12-prometheus", "Debian 12 with Prometheus", base="debian12", packages=("prometheus",)),
        System("debian12-drivers", "Debian 12 with dkms and kernel headers", base="debian12", packages=DRIVERS),
        System("debian13-drivers", "Debian 13 with dkms and kernel headers", base="debian13", packages=DRIVERS),
        System(
            "debian12-archive", "Debian 12 with its own drivers to install", base="debian12-drivers", packages=NONFREE,
            script=ARCHIVE,
        ),
        System("debian12-zypper", "Debian 12 with zypper", base="debian12", packages=(*RPM, "zypper")),
    )
}  # fmt: skip
#: Hosts as they come, with nothing on them that a test would have to ask for.
PLAIN = tuple(name for name, system in SYSTEMS.items() if not system.base)


def by_name_of_host(host: str) -> str:
    """The system that a host is named after: ``debian13-a`` has debian13; debian12 for all other names."""
    fitting = [name for name in SYSTEMS if host == name or host.startswith(f"{name}-")]
    return max(fitting, key=len, default="debian12")


def is_made(system: System) -> bool:
    return system.image() in podman("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode().split()


def ensure(name: str, report: Report = say) -> str:
    """The image of a system by name; made first where our storage has none."""
    if name not in SYSTEMS:
        raise HostError(f"There are no hosts with {name!r}; there are {', '.join(SYSTEMS)}")
    system = SYSTEMS[name]
    prepare(report)
    if is_made(system):
        return system.image()
    if system.base:
        ensure(system.base, report)
    lock = cache_dir() / "hosts" / f"{system.name}-{system.key()}.lock"
    with locked(lock, lambda: report(f"{system.title}: another run makes the image, waiting")):
        if not is_made(system):
            report(f"{system.title}: making the image, once, 1 to 3 minutes")
            started = time.monotonic()
            (_make_more if system.base else _make)(system)
            report(f"{system.title}: image made in {time.monotonic() - started:.0f} s")
    return system.image()


def _make_more(system: System) -> None:
    """Install packages in a container of the base, and keep what has changed in it as one more layer."""
    name = f"gpufleet-build-{system.name}-{system.key()}"  # a build that was killed left one: this one holds the lock
    base = SYSTEMS[system.base].image()
    variables = ("--env", f"PACKAGES={' '.join(system.packages)}")
    podman(
        "create", "--replace", "--name", name, "--runtime", "runc", *LIMITS, "--network", "host", *variables,
        base, "/bin/sh", "-c", system.script,
    )  # fmt: skip
    try:
        podman("start", "--attach", name, timeout=450)
        podman("commit", "--quiet", name, system.image(), timeout=300)
    finally:
        podman("rm", "--force", "--time", "0", name, check=False)


def _make(system: System) -> None:
    downloads = cache_dir() / "hosts" / f"{system.suite}-packages"
    downloads.mkdir(exist_ok=True)
    prefix = f".build-{system.name}-{system.key()}-"
    for left in (cache_dir() / "hosts").glob(f"{prefix}*"):  # by a build that was killed: this one holds the lock
        subprocess.run(["umount", "--lazy", left], capture_output=True, check=False)
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache_dir() / "hosts") as scratch, _in_memory(scratch):
        root = Path(scratch) / "root"
        wanted = ("--variant=minbase", f"--include={','.join(PACKAGES)}", f"--cache-dir={downloads}")
        _call(["debootstrap", *wanted, system.suite, root], 900)
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for unit in MASKED:
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
        _call(["chroot", root, "/bin/sh", "-c", SCRIPT], 120)
        archive = Path(scratch) / "root.tar"
        parts = ("--exclude=./dev/*", "--numeric-owner", "--xattrs", "--create", "--file", archive, ".")
        _call(["tar", "--directory", root, *parts], 300)
        podman("import", "--quiet", archive, system.image(), timeout=300)


@contextmanager
def _in_memory(folder: str) -> Iterator[None]:
    """Keep a folder in memory while it is built in: dpkg waits for the disk at every file."""
    mounted = (
        _free_memory() > 4
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2g,mode=0755", "tmpfs", folder], capture_output=True, check=False
        ).returncode
    )
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


def _free_memory() -> float:
    """In GiB."""
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) / 2**20 if found else 0.0


def _call(command: list[str | Path], timeout: float) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout,
            preexec_fn=_die_with_starter,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HostError(f"{command[0]} did not end within {timeout:g} s") from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise HostError(f"{' '.join(str(word) for word in command)[:300]} failed:\n{said}")
