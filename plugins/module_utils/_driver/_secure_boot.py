# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: whether modules have to be signed, the key that DKMS signs with, and asking the firmware to trust it.

A request is all that can be made from here: a person confirms it at the console, at the next boot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host_state import _system
from .._plan import WARNING, Failure, Finding
from ._kernel import tree_of

FOLDER = "/var/lib/gpufleet/nvidia_driver"
HASH = f"{FOLDER}/mok.hash"
SIG_ENFORCE = "/sys/module/module/parameters/sig_enforce"

ENROLLED = "enrolled"
PENDING = "pending"
NOT_ENROLLED = "not_enrolled"
UNKNOWN = "unknown"

_PAIRS = (
    ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"),
    ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"),
)
_SETTING = re.compile(r"(?m)^\s*(mok_signing_key|mok_certificate)\s*=\s*[\"']?([^\"'\s#]+)")
_HASH = re.compile(r"(?m)(\$[0-9a-zA-Z]+\$\S+)\s*$")
_MOST = 256  # characters that MokManager takes
_CONSOLE = (
    "Reboot the host with its console open (BMC or screen): MokManager asks at boot, choose Enroll MOK and give the "
    "one-time password; then run again."
)


@dataclass(frozen=True)
class State:
    """``secure_boot``: enabled, disabled or unknown; ``lockdown``: none, integrity, confidentiality or unknown;
    ``signed_only``: the kernel loads no module without a signature that it trusts."""

    secure_boot: str
    lockdown: str
    signed_only: bool


@dataclass(frozen=True)
class Key:
    """Files of the key that DKMS signs with."""

    private: str
    certificate: str


@dataclass(frozen=True)
class Staged:
    """``state``: enrolled, or pending where a person has to confirm at the console. ``changed``: asked just now."""

    state: str
    certificate: str
    changed: bool

    @property
    def mok_enrolment_pending(self) -> bool:
        return self.state == PENDING


def state(files: Files) -> State:
    """From the firmware's variable and the kernel; mokutil is not asked."""
    tree = tree_of(files, "host")
    found = _system.read(tree)
    locked = found.lockdown not in ("none", _system.UNKNOWN)
    only = found.secure_boot == _system.ENABLED or locked or tree.text(SIG_ENFORCE) in ("Y", "1")
    return State(found.secure_boot, found.lockdown, only)


def key(files: Files) -> Optional[Key]:
    """The key that DKMS signs with, by its configuration or at its usual places; None where it has none yet."""
    tree = tree_of(files)
    texts = [tree.text("/etc/dkms/framework.conf")]
    folder = "/etc/dkms/framework.conf.d"
    texts += [tree.text(f"{folder}/{name}") for name in tree.names(folder) if name.endswith(".conf")]
    given = {name: path for text in texts for name, path in _SETTING.findall(text)}
    pairs = [(given.get("mok_signing_key", _PAIRS[0][0]), given.get("mok_certificate", _PAIRS[0][1])), *_PAIRS]
    for private, certificate in pairs:
        if tree.kind(certificate) == "file":
            return Key(private, certificate)
    return None


def enrolment(runner: Runner, certificate: str) -> str:
    """Whether the firmware trusts a certificate: enrolled, pending, not_enrolled; unknown where mokutil is silent."""
    try:
        told = runner.run(["mokutil", "--test-key", certificate], check=False, timeout=30.0)
    except CommandFailed:
        return UNKNOWN
    text = f"{told.out}\n{told.err}"
    for words, meant in (
        ("already enrolled", ENROLLED),
        ("already in db", ENROLLED),
        ("enrollment request", PENDING),
        ("is not enrolled", NOT_ENROLLED),
    ):
        if words in text:
            return meant
    return UNKNOWN


def stage(runner: Runner, files: Files, password: str, found: Optional[Key] = None) -> Staged:
    """Ask the firmware to trust the key that DKMS signs with, with a one-time password for the console.

    The password goes to mokutil by its standard input, its hash by a file of root's that is removed again: neither is
    ever an argument, nor in a result. Where the key is enrolled or asked for already, nothing is done.
    """
    files.remove(HASH)  # what a killed run may have left
    pair = found or key(files)
    if pair is None:
        raise Failure(
            "There is no key that DKMS signs modules with, so none can be enrolled. Install dkms 3 and build a module "
            "once (or run `dkms generate_mok`), then run again."
        )
    certificate = pair.certificate
    now = enrolment(runner, certificate)
    if now in (ENROLLED, PENDING):
        return Staged(now, certificate, False)
    if now == UNKNOWN:
        raise Failure(
            f"mokutil does not tell whether {certificate} is enrolled. Install mokutil, and run on a host that boots "
            "by EFI."
        )
    _import(runner, files, certificate, password)
    now = enrolment(runner, certificate)
    if now != PENDING:
        raise Failure(
            f"mokutil ended well, and the firmware has no request for {certificate} ({now}). Its store may be full or "
            "read-only: look at `mokutil --list-new`."
        )
    return Staged(PENDING, certificate, True)


def password_problem(password: str) -> str:
    """What is wrong with a one-time password; the password itself is not told."""
    fits = 1 <= len(password) <= _MOST and password.isprintable()
    return "" if fits else f"The one-time password has to be 1 to {_MOST} printable characters."


def _import(runner: Runner, files: Files, certificate: str, password: str) -> None:
    problem = password_problem(password)
    if problem:
        raise Failure(problem)
    told = runner.run(["mokutil", "--generate-hash"], check=False, timeout=60.0, stdin=f"{password}\n{password}\n")
    hashed = _HASH.search(told.out)
    if told.rc != 0 or not hashed:
        raise Failure("mokutil made no hash of the one-time password. Update mokutil.")
    files.make_folder(FOLDER, 0o700)
    try:
        files.write(HASH, f"{hashed.group(1)}\n", 0o600)
        runner.run(["mokutil", "--import", certificate, "--hash-file", files.root.at(HASH)], timeout=60.0)
    except CommandFailed as failure:
        raise Failure(f"The firmware was not asked to trust {certificate}: {failure.how.words()}") from None
    finally:
        files.remove(HASH)


def pending(certificate: str) -> Finding:
    """What a person has to do about a request."""
    detail = f"Secure Boot waits for {certificate} to be confirmed, and loads no module signed with it till then"
    return Finding("mok_enrolment_pending", WARNING, detail, remedy=_CONSOLE)
