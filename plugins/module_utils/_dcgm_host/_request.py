# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the exporter on a host, from the module's options: judged, and in one shape. Reads only."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Tuple

from .._host._files import Files
from .._matrix import LATEST, RELEASES
from .._plan import ERROR, Finding
from . import _counters, _settings, _units
from ._counters import Counter
from ._units import Wanted

EMBEDDED = "embedded"
_PATH = re.compile(r"/[A-Za-z0-9._/+-]+\Z")
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:@-]{0,500}\Z")
_ENGINE = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]+\]):(\d{1,5})\Z")
_HASH = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}\Z")
_USER = re.compile(r"[^\x00-\x1f:\x7f]{1,128}\Z")
_TAG = re.compile(r":v?(\d+)\.(\d+)\.\d+")
_HIDDEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # by ProtectHome and PrivateTmp
_HERE = ("localhost", "127.0.0.1", "[::1]")


@dataclass
class Request:
    """``text``: files by path, with their text; ``findings``: all that is wrong."""

    wanted: Wanted
    counters: List[Counter] = field(default_factory=list)
    files: Dict[str, str] = field(default_factory=dict)
    findings: List[Finding] = field(default_factory=list)

    @property
    def metrics(self) -> List[str]:
        """Names that have to come out."""
        return [one.field for one in self.counters if one.kind != _counters.LABEL]


def read(params: Mapping[str, Any], files: Files, dcgm: Tuple[int, ...]) -> Request:
    """``dcgm``: its version as it will be, () where nobody knows."""
    found: List[Finding] = []
    address = _address(params, found)
    engine, local = _engine(params, found)
    settings, wrong = _settings.environment(params.get("settings") or {}, dcgm)
    found += wrong
    container, image, devices = _container(params.get("container") or {}, found)
    web = params.get("web_config") or {}
    certificate, key, users = _web(web, files, found)
    program = str(params["program"])
    if not _PATH.match(program):
        found.append(Finding("no_program", ERROR, f"{program!r} is no absolute path of a program", path="program"))
    elif not container and not os.access(files.root.at(program), os.X_OK):
        detail = f"{program} is not there, and NVIDIA publishes no package of the exporter"
        remedy = "Put the program there (it is in NVIDIA's image), or ask for a container"
        found.append(Finding("exporter_missing", ERROR, detail, path="program", remedy=remedy))
    found += _numbers(params)
    wanted = Wanted(
        program, container, image, devices, address, engine, local, int(params["collect_interval"]),
        tuple(sorted(settings.items())), bool(certificate or users), certificate, key,
    )  # fmt: skip
    found += _skew(wanted, dcgm)
    counters, wrong = _counters.read(params.get("metrics") or _counters.DEFAULT, dcgm, params.get("accept") or ())
    request = Request(wanted, counters, findings=found + wrong)
    request.files = {
        _units.COUNTERS: _counters.render(counters),
        _units.ENVIRONMENT: _units.environment_file(wanted),
        **({_units.WEB: _units.web_file(certificate, key, users)} if wanted.web else {}),
        **_units.unit_files(wanted),
    }
    return request


def _address(params: Mapping[str, Any], found: List[Finding]) -> str:
    port, host = int(params["port"]), str(params["listen_address"])
    if not 1 <= port <= 65535:
        found.append(Finding("no_port", ERROR, f"{port}; allowed are 1 to 65535", path="port"))
    if not host:
        return f":{port}"
    try:
        given = ipaddress.ip_address(host)
    except ValueError:
        detail = f"{host!r} is no address; allowed are IPv4 and IPv6 addresses, and nothing for all of the host's"
        found.append(Finding("no_address", ERROR, detail, path="listen_address"))
        return f"127.0.0.1:{port}"
    return f"[{given}]:{port}" if given.version == 6 else f"{given}:{port}"


def _engine(params: Mapping[str, Any], found: List[Finding]) -> Tuple[str, bool]:
    """Address of the host engine, and whether it is this host's own."""
    if params["hostengine"] == EMBEDDED:
        return "", True
    address = str(params["hostengine_address"])
    match = _ENGINE.match(address)
    if not match or not 1 <= int(match.group(2)) <= 65535:
        detail = f"{address!r} is no address of a host engine, such as localhost:5555"
        found.append(Finding("no_engine", ERROR, detail, path="hostengine_address"))
        return "localhost:5555", True
    return address, match.group(1).lower() in _HERE


def _container(given: Mapping[str, Any], found: List[Finding]) -> Tuple[str, str, str]:
    """Engine of containers, image, and how the container gets the GPUs; "" without a container."""
    engine = str(given.get("engine") or "")
    if not engine:
        return "", "", "gpus"
    image = str(given.get("image") or "") or ":".join(
        ["/".join(RELEASES[LATEST].images["dcgmExporter"][:2]), RELEASES[LATEST].images["dcgmExporter"][2]]
    )
    if not _IMAGE.match(image):
        found.append(Finding("no_image", ERROR, f"{image!r} is no name of an image", path="container.image"))
    devices = str(given.get("devices") or "auto")
    return engine, image, {"auto": "cdi" if engine == "podman" else "gpus"}.get(devices, devices)


def _web(given: Mapping[str, Any], files: Files, found: List[Finding]) -> Tuple[str, str, Dict[str, str]]:
    certificate, key = str(given.get("cert_file") or ""), str(given.get("key_file") or "")
    if bool(certificate) != bool(key):
        detail = "needs cert_file and key_file, or neither"
        found.append(Finding("web_config", ERROR, detail, path="web_config"))
    for name, path in (("cert_file", certificate), ("key_file", key)):
        if path and (not _PATH.match(path) or not os.path.isfile(files.root.at(path))):
            found.append(Finding("web_config", ERROR, f"{path} is no file of this host", path=f"web_config.{name}"))
        if path.startswith(_HIDDEN):
            detail = f"{path} is where the service does not look; allowed are paths not below {', '.join(_HIDDEN)}"
            found.append(Finding("web_config", ERROR, detail, path=f"web_config.{name}"))
    users = {str(name): str(value) for name, value in (given.get("basic_auth_users") or {}).items()}
    for name, value in users.items():
        if not _USER.match(name) or not _HASH.match(value):
            detail = f"the value of {name!r} is no bcrypt hash, such as `htpasswd -nB` makes"
            found.append(Finding("web_config", ERROR, detail, path="web_config.basic_auth_users"))
    return certificate, key, users


def _numbers(params: Mapping[str, Any]) -> List[Finding]:
    limits = {"collect_interval": (100, 3600000), "scrape_timeout": (1, 3600)}
    return [
        Finding("no_number", ERROR, f"{params[name]}; allowed are {low} to {high}", path=name)
        for name, (low, high) in limits.items()
        if not low <= int(params[name]) <= high
    ]


def _skew(wanted: Wanted, dcgm: Tuple[int, ...]) -> List[Finding]:
    """The image's library and the host engine speak the same language within one major version."""
    tag = _TAG.search(wanted.image)
    if not (tag and dcgm and wanted.engine and wanted.local) or int(tag.group(1)) == dcgm[0]:
        return []
    detail = f"the image has DCGM {tag.group(1)}.{tag.group(2)}, and the host engine is {'.'.join(map(str, dcgm))}"
    return [
        Finding("engine_skew", ERROR, detail, path="container.image", remedy="Use an image of the same major version")
    ]
