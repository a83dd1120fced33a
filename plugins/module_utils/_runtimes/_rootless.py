# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker that a user runs without root, with a configuration and a systemd of that user's own.

What lies below a user's home is read and written with that user's rights alone: whatever links and files are made there
meanwhile, root's own are out of reach.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import pwd
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._plan import WARNING, Finding

CONFIG = ".config/docker/daemon.json"
UNIT = "docker.service"
NO_CGROUPS = "nvidia-container-cli.no-cgroups"
_NOTE = "rootless:"
# What root reads and writes. A home around or below one of these would lend that to its user.
_OF_ROOT = (
    "/boot",
    "/dev",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/usr",
    "/var/lib/gpufleet",
    "/var/lib/rancher",
    "/var/snap",
)


@dataclass(frozen=True)
class Person:
    """A user of the host who runs a daemon."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def config(self) -> str:
        return posixpath.join(self.home, CONFIG)

    @property
    def runtime_dir(self) -> str:
        """Where the daemon's socket and process number are."""
        return f"/run/user/{self.uid}"

    @property
    def socket(self) -> str:
        return f"{self.runtime_dir}/docker.sock"


def person(name: str) -> Optional[Person]:
    """A user by name; None where the host has no such user with a home apart from what is root's. root's daemon is not
    rootless."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    if not found.pw_uid or not _is_home(found.pw_dir):
        return None
    return Person(found.pw_name, found.pw_uid, found.pw_gid, posixpath.normpath(found.pw_dir))


def _is_home(path: str) -> bool:
    if not posixpath.isabs(path):
        return False
    home = posixpath.normpath(path).rstrip("/") + "/"
    return not any(home.startswith(f"{one}/") or f"{one}/".startswith(home) for one in _OF_ROOT)


def remembered(who: Person) -> Dict[str, Any]:
    """Value of that note: whose rights the way back takes, also where the user is gone by then."""
    return {"home": who.home, "uid": who.uid, "gid": who.gid}


def homes(notes: Mapping[str, Any]) -> Dict[str, Tuple[int, int]]:
    """Homes in which daemons were configured, and the rights that are taken below each."""
    values = [value for key, value in notes.items() if key.startswith(_NOTE) and isinstance(value, dict)]
    return {str(one["home"]): (int(one["uid"]), int(one["gid"])) for one in values}


def note(name: str) -> str:
    """Key of the journal's note that a user's daemon was configured."""
    return f"{_NOTE}{name}"


def noted(notes: Mapping[str, Any]) -> List[str]:
    """Users whose daemons were configured."""
    return [key[len(_NOTE) :] for key in notes if key.startswith(_NOTE)]


@contextlib.contextmanager
def as_person(uid: int, gid: int) -> Iterator[None]:
    """Rights of that user for a while; of whoever runs this where that is not root."""
    if os.geteuid():
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


class SharedFiles(Files):
    """Files of a host, those below the homes of ``people`` with the rights of whoever lives there."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.root, files._watch)
        self.people: Dict[str, Tuple[int, int]] = {}

    def lend(self, who: Person) -> None:
        """From now on, what lies below this user's home is the user's."""
        self.people[who.home] = (who.uid, who.gid)

    def _rights(self, path: str) -> contextlib.AbstractContextManager[None]:
        for home, (uid, gid) in self.people.items():
            if posixpath.normpath(path).startswith(home + "/"):
                return as_person(uid, gid)
        return contextlib.nullcontext()

    def read(self, path: str) -> Optional[bytes]:
        with self._rights(path):
            return super().read(path)

    def exists(self, path: str) -> bool:
        with self._rights(path):
            return super().exists(path)

    def write_bytes(
        self, path: str, content: bytes, mode: Optional[int] = None, owner: Optional[Tuple[int, int]] = None
    ) -> bool:
        with self._rights(path):
            return super().write_bytes(path, content, mode, owner)

    def remove(self, path: str) -> bool:
        with self._rights(path):
            return super().remove(path)

    def make_folder(self, path: str, mode: int = 0o755) -> List[str]:
        with self._rights(path):
            return super().make_folder(path, mode)

    def remove_folder(self, path: str) -> bool:
        with self._rights(path):
            return super().remove_folder(path)


def daemon_pid(who: Person) -> int:
    """The process of the user's dockerd; 0 where none of that user's runs under the number that it left."""
    try:
        with as_person(who.uid, who.gid), open(f"{who.runtime_dir}/docker.pid", encoding="ascii") as file:
            pid = int(file.read(16))
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read(64).strip()
        return pid if name == "dockerd" and os.stat(f"/proc/{pid}").st_uid == who.uid else 0
    except (OSError, ValueError):
        return 0


def flags(pid: int) -> List[str]:
    """How a process was started."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return [word for word in file.read(65536).split("\0") if word]
    except OSError:
        return []


def activate(runner: Runner, who: Person, reloads: bool) -> str:
    """Have the daemon read its file: by SIGHUP where it runs, since a restart stops the user's containers."""
    pid = daemon_pid(who) if reloads else 0
    if pid:
        runner.run(_as_user(who, ["kill", "-HUP", str(pid)]), timeout=30)
        return "reload"
    runner.run(_as_user(who, ["systemctl", "--user", "restart", UNIT]), timeout=120)
    return "restart"


def _as_user(who: Person, argv: List[str]) -> List[str]:
    bus = f"DBUS_SESSION_BUS_ADDRESS=unix:path={who.runtime_dir}/bus"
    return ["runuser", "-u", who.name, "--", "env", f"XDG_RUNTIME_DIR={who.runtime_dir}", bus, *argv]


def shared_setting(names: List[str], mode: str) -> List[Finding]:
    """What is said of a setting that containers without root need, and that holds for all containers of the host.

    ``names``: runtimes that root runs; ``mode``: how the NVIDIA runtime works.
    """
    if not names or mode in ("cdi", "jit-cdi"):
        return []
    detail = (
        f"{NO_CGROUPS} holds for every runtime of the host: where the NVIDIA runtime works in mode legacy, containers "
        f"of {', '.join(names)} do not get their GPUs allowed then"
    )
    remedy = "Set nvidia-container-runtime.mode: cdi in toolkit_config, or run one kind of daemon on a host"
    return [Finding("no_cgroups_for_all", WARNING, detail, "docker", NO_CGROUPS, remedy)]
