# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which proxy and which certificates daemons pull images: environment variables of their systemd units.

A drop-in of the unit names a file of variables that root alone reads. What a drop-in says by ``Environment=`` every
user of the host can ask systemd for, a password too. All runtimes are Go programs: they read ``SSL_CERT_FILE`` and
``SSL_CERT_DIR`` in place of their usual file and folders, but both of the two. So the folder alone is set, and the
usual folders are named behind ours: what the host trusts is trusted still.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import ssl
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._host._systemd import Units, wrong_name
from .._plan import ERROR, INFO, WARNING, Failure, Finding
from ._find import Target
from ._json import Json, JsonError
from ._types import HEADER, Change, Reader, table

MARK = "GPUFLEET_IMAGE_PULLS"  # tells a daemon that was started with our variables, and with which certificates
DROP_IN = "/gpufleet-image-pulls.conf"
_UNITS = "/etc/systemd/system"
_FOLDERS = (
    _UNITS,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_GO_FOLDERS = "/etc/ssl/certs:/etc/pki/tls/certs"  # crypto/x509, root_linux.go
_WORD = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*\.?"
_PROXY = re.compile(
    rf"(?:https?|socks5)://(?:{_WORD}(?::{_WORD})?@)?(?:{_NAME}|\[[0-9A-Fa-f:.]+\])(?::([0-9]{{1,5}}))?/?\Z"
)
_NO_PROXY = re.compile(r"[A-Za-z0-9_.*:/\[\]-]+\Z")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)

_ESCAPED, _BACKSLASH = re.compile(r'([\\"`$])'), r"\\\1"


@dataclass(frozen=True)
class Pulls:
    """What is wanted; nothing of it is that nothing of ours stays. ``certificates``: in letters, beside the host's."""

    proxy: str = ""
    no_proxy: Tuple[str, ...] = ()
    certificates: str = ""


@dataclass
class Plan:
    """What has to change for one daemon. ``variables``: what it has to be started with; None to leave that as it is."""

    variables: Optional[Dict[str, str]] = None
    changes: List[Change] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)


def wish(given: Optional[Mapping[str, Any]], files: Files) -> Tuple[Optional[Pulls], List[Finding]]:
    """The option ``image_pulls`` and what is wrong with it. Values are not told: a password may be among them."""
    if given is None:
        return None, []
    found = []
    proxy, no_proxy = str(given.get("proxy") or ""), tuple(str(one) for one in given.get("no_proxy") or ())
    matched = _PROXY.match(proxy)
    if proxy and not (matched and 0 < int(matched.group(1) or 1) <= 65535):
        detail = (
            "is no proxy; allowed are addresses like http://proxy.example.com:3128 or "
            "http://user:password@proxy.example.com:3128, with http, https or socks5, and with %XX for signs such as @ "
            "and : in user and password"
        )
        found.append(Finding("pulls_proxy", ERROR, detail, path="image_pulls.proxy"))
    for number, one in enumerate(no_proxy):
        if not _NO_PROXY.match(one):
            detail = "cannot be reached without a proxy; allowed are names, addresses, ranges, such as .example.com"
            found.append(Finding("pulls_no_proxy", ERROR, detail, path=f"image_pulls.no_proxy[{number}]"))
    path, certificates = str(given.get("ca_file") or ""), ""
    if path:
        certificates = _certificates(path, files)
        if not certificates:
            detail = f"{path!r} is no file of certificates in letters (PEM) on this host"
            found.append(Finding("pulls_ca", ERROR, detail, path="image_pulls.ca_file", remedy="Put it there first"))
    return Pulls(proxy, no_proxy, certificates), found


def _certificates(path: str, files: Files) -> str:
    """The certificates of a file, without a key that may stand beside them; "" where there is none, or a broken one."""
    try:
        text = files.text(path) or ""
    except Failure:
        return ""
    found = "".join(f"{one}\n" for one in _CERTIFICATE.findall(text))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError):
        return ""
    return found


# --- The plan for one daemon ------------------------------------------------------------------------------------------


def drop_in(unit: str) -> str:
    """The unit's drop-in that is ours."""
    return f"{_UNITS}/{unit}.d{DROP_IN}"


def _place(unit: str) -> str:
    return f"/etc/gpufleet/{unit}"


def is_ours(path: str) -> bool:
    """Whether a file is one of those that are planned here."""
    return path.endswith(DROP_IN) or path.startswith(_place(""))


def mode(path: str) -> Optional[int]:
    """Mode of a new file, where root alone may read it."""
    return 0o600 if path.startswith(_place("")) and path.endswith("/environment") else None


def variables(unit: str, wanted: Pulls) -> Dict[str, str]:
    """What the daemon is started with; nothing where nothing is wanted."""
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), wanted.proxy) if wanted.proxy else {}
    if wanted.no_proxy:
        found["NO_PROXY"] = ",".join(wanted.no_proxy)
    if wanted.certificates:
        found["SSL_CERT_DIR"] = f"{_place(unit)}/certificates:{_GO_FOLDERS}"
    if found:
        # A variable that went, and other certificates in the same folder, can be told of a running daemon by this only.
        digest = hashlib.sha256(wanted.certificates.encode()).hexdigest()[:16] if wanted.certificates else "none"
        found[MARK] = f"{' '.join(found)} {digest}"
    return found


def plan(reader: Reader, target: Target, wanted: Optional[Pulls]) -> Plan:
    """What has to change; reads files only. Raises Failure for what is no plain file."""
    if wanted is None:
        return Plan()
    unit = "" if target.person or wrong_name(target.unit) else target.unit
    if target.name == "podman" or not unit:
        return Plan(findings=_told(target) if wanted != Pulls() else [])
    found = Plan(variables(unit, wanted))
    found.findings = _taken(reader, target, found.variables or {})
    texts = {
        f"{_place(unit)}/certificates/image-pulls.crt": wanted.certificates,
        f"{_place(unit)}/environment": _environment(found.variables or {}),
        drop_in(unit): f"{HEADER}[Service]\nEnvironmentFile=-{_place(unit)}/environment\n" if found.variables else "",
    }
    reason = "how it pulls images"
    changes = [Change(path, reader.text(path), text or None, reason) for path, text in texts.items()]
    changes = [one for one in changes if one.before != one.after]
    # What a file names is written before that file, and goes after it.
    found.changes = [one for one in changes if one.after] + [one for one in reversed(changes) if not one.after]
    return found


def _told(target: Target) -> List[Finding]:
    """Daemons that have no unit of the host's, and podman, which has no daemon."""
    if target.name == "podman":
        detail = "has no daemon: it takes a proxy from the environment of whoever calls it, not from image_pulls"
        return [Finding("pulls_of_podman", INFO, detail, "podman", remedy="Set HTTPS_PROXY there")]
    if not (target.running or target.named):
        return []
    detail = "is started by no systemd unit of the host, so that its environment cannot be set by image_pulls"
    remedy = "Set HTTPS_PROXY and SSL_CERT_DIR where it is started"
    severity = ERROR if target.named else WARNING  # what was only found need not stand in the way of the others
    return [Finding("pulls_without_unit", severity, detail, target.label, "image_pulls", remedy)]


def _environment(wanted: Mapping[str, str]) -> str:
    """A file of variables as systemd reads it (systemd.exec, EnvironmentFile=): no specifiers, no substitution."""
    lines = [f'{name}="{_ESCAPED.sub(_BACKSLASH, value)}"\n' for name, value in wanted.items()]
    return HEADER + "".join(lines) if lines else ""


def _taken(reader: Reader, target: Target, wanted: Mapping[str, str]) -> List[Finding]:
    """Who else says what ours would say, and says something else."""
    found = []
    said = said_by_others(reader, target.unit)
    said.update(_said_by_docker(reader, target))
    for name, (path, value) in said.items():
        # k3s and RKE2 give CONTAINERD_HTTP_PROXY to their containerd as HTTP_PROXY.
        plain = name.upper().replace("CONTAINERD_", "", 1)
        if plain in wanted and wanted[plain] != value:
            detail = f"sets {name} for {target.unit} already, to something else than image_pulls says"
            remedy = "Take it out there, or say the same, or leave it out of image_pulls"
            found.append(Finding("pulls_taken", ERROR, detail, path, remedy=remedy))
    ours = drop_in(target.unit)
    if wanted and not (reader.text(ours) or HEADER).startswith(HEADER):
        detail = "is not of this module, and is where its part would be"
        found.append(Finding("pulls_taken", ERROR, detail, ours, remedy="Move it away, or give it another name"))
    return found


def said_by_others(reader: Reader, unit: str) -> Dict[str, Tuple[str, str]]:
    """Variables that a unit's other files set -> the file that does, and the value."""
    by_unit: Dict[str, Tuple[str, str]] = {}
    by_file: Dict[str, Tuple[str, str]] = {}
    for path in _unit_files(reader, unit):
        for key, value in _lines(reader.text(path) or ""):
            if key == "Environment":
                by_unit = {**by_unit, **_assigned(path, _words(value))} if value else {}
            elif key == "EnvironmentFile":
                pattern = value.lstrip("-").replace("%N", unit.rpartition(".")[0])  # the units of k3s have it
                for file in reader.glob(pattern) if pattern.startswith("/") else ():
                    lines = [word for line in (reader.text(file) or "").splitlines() for word in _words(line)]
                    by_file.update(_assigned(file, lines))
                by_file = by_file if value else {}
    return {**by_unit, **by_file}


def _unit_files(reader: Reader, unit: str) -> List[str]:
    """The unit's file and its drop-ins except ours, as systemd reads them."""
    units = [one for folder in _FOLDERS for one in reader.glob(f"{folder}/{unit}")]
    found: Dict[str, str] = {}
    for folder in (f"{unit}.d", f"{unit.rpartition('.')[2]}.d"):
        for path in (one for place in _FOLDERS for one in reader.glob(f"{place}/{folder}/*.conf")):
            found.setdefault(os.path.basename(path), path)
    return units[:1] + [path for _name, path in sorted(found.items()) if path != drop_in(unit)]


def _lines(text: str) -> List[Tuple[str, str]]:
    """Settings of a unit file, in order."""
    joined = re.sub(r"\\\n[ \t]*", " ", re.sub(r"(?m)^[ \t]*[#;].*\n?", "", text))
    pairs = (line.partition("=") for line in joined.splitlines())
    return [(key.strip(), value.strip()) for key, equals, value in pairs if equals]


def _words(text: str) -> List[str]:
    try:
        return shlex.split(text, comments=text.lstrip().startswith(("#", ";")))
    except ValueError:
        return text.split()


def _assigned(path: str, words: Sequence[str]) -> Dict[str, Tuple[str, str]]:
    pairs = (word.partition("=") for word in words)
    return {name: (path, value.replace("%%", "%")) for name, equals, value in pairs if equals}


def _said_by_docker(reader: Reader, target: Target) -> Dict[str, Tuple[str, str]]:
    """Docker's own settings count before its environment (23 and newer)."""
    if target.name != "docker":
        return {}
    names = ("http-proxy", "https-proxy", "no-proxy")
    try:
        given = table(Json(reader.text(target.config) or "{}").data.get("proxies"))
    except JsonError:
        return {}  # told as a file that cannot be read
    found = {one.upper().replace("-", "_"): (target.config, str(given[one])) for one in names if one in given}
    for word in target.flags:
        name, _equals, value = word.lstrip("-").partition("=")
        if word.startswith("--") and name in names:
            found[name.upper().replace("-", "_")] = ("its command line", value)
    return found


# --- As a daemon runs -------------------------------------------------------------------------------------------------


def started_with(runner: Runner, unit: str) -> Dict[str, str]:
    """Environment of a unit's main process; empty where none runs."""
    said = _shown(runner, unit, "MainPID")
    try:
        if int(said or 0) > 0:
            with open(f"/proc/{said}/environ", encoding="utf-8", errors="replace") as file:
                pairs = (one.partition("=") for one in file.read().split("\0"))
                return {name: value for name, equals, value in pairs if equals}
    except (OSError, ValueError):
        pass  # it ended meanwhile
    return {}


def differs(environment: Mapping[str, str], wanted: Mapping[str, str]) -> List[str]:
    """Names of variables that a daemon was not started with as it should."""
    return [name for name in (*wanted, *([] if wanted else [MARK])) if environment.get(name) != wanted.get(name)]


def heed(runner: Runner, files: Files, unit: str, changed: bool) -> None:
    """Have systemd read our drop-in where it came, changed or went, in an earlier run that was killed too."""
    path = drop_in(unit)
    if changed or files.exists(path) != (path in _shown(runner, unit, "DropInPaths").split()):
        Units(runner).reload()


def _shown(runner: Runner, unit: str, name: str) -> str:
    done = runner.run(["systemctl", "show", f"--property={name}", "--", unit], check=False, timeout=30)
    return done.out.strip().partition("=")[2]


def stops(label: str, containers: int, accept: Sequence[str]) -> List[Finding]:
    """What is said of a restart that ends containers."""
    if not containers:
        return []
    detail = f"a restart, which other variables of its unit need, ends its {containers} running containers"
    remedy = (
        "Set live-restore in daemon.json and reload it first, or restart it yourself and give restart: false, or "
        "accept: [restart_stops_containers]"
    )
    severity = WARNING if "restart_stops_containers" in accept else ERROR
    return [
        Finding("restart_stops_containers", severity, detail, label, remedy=remedy, accept="restart_stops_containers")
    ]
