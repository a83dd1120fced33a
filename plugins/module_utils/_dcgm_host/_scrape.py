# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the exporter gives, read as Prometheus reads it, and whether every wanted metric is in it."""

from __future__ import annotations

import re
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_MOST = 64 * 1024 * 1024
_PAUSE = 0.5
_PARTIAL_CHAIN = 0x80000  # a certificate of its own is enough; ssl has the name from Python 3.10 on

Instance = Tuple[str, int]  # UUID of the GPU, id of the GPU instance


@dataclass
class Metrics:
    """``names`` of all metrics; ``labels`` of all series; what they say of GPUs, MIG instances and the driver."""

    names: Set[str] = field(default_factory=set)
    labels: Set[str] = field(default_factory=set)
    gpus: Set[str] = field(default_factory=set)
    instances: Set[Instance] = field(default_factory=set)
    driver: str = ""


class NoMetrics(Exception):
    """The exporter does not answer, or with something else; the message tells how."""


def parse(text: str) -> Metrics:
    """The text format. Lines that are none are passed over, as other exporters' are."""
    found = Metrics()
    for line in text.splitlines():
        sample = _SAMPLE.match(line) if not line.startswith("#") else None
        if not sample:
            continue
        found.names.add(sample.group(1))
        labels = dict(_LABEL.findall(sample.group(2) or ""))
        found.labels.update(labels)
        # Series of NVLink spell the label in small letters.
        uuid = labels.get("UUID") or labels.get("gpu_uuid") or ""
        if uuid.startswith("GPU-"):
            found.gpus.add(uuid)
            if labels.get("GPU_I_ID", "").isdigit():
                found.instances.add((uuid, int(labels["GPU_I_ID"])))
        found.driver = labels.get("DCGM_FI_DRIVER_VERSION") or found.driver
    return found


def fetch(url: str, certificate: str = "", timeout: float = 10.0) -> Optional[Metrics]:
    """One scrape. None where the exporter answers and wants a password: only hashes of passwords are known here.

    ``certificate``: the file whose certificate the exporter has to show; for which names it is does not matter on the
    host itself. Raises NoMetrics.
    """
    context = _context(certificate) if certificate else None
    # No proxy of the environment may be asked for the host's own address.
    handlers = [urllib.request.ProxyHandler({})]
    handlers += [urllib.request.HTTPSHandler(context=context)] if context else []  # type: ignore[list-item]
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=timeout) as answer:
            return parse(answer.read(_MOST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        if error.code == 401:
            return None
        raise NoMetrics(f"{url} answers {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NoMetrics(f"{url} does not answer: {reason}") from None


def _context(certificate: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError) as error:
        raise NoMetrics(f"{certificate} cannot be read as a certificate: {error}") from None
    context.check_hostname = False
    context.verify_flags |= _PARTIAL_CHAIN
    return context


def wait(
    ask: Callable[[], Optional[Metrics]],
    wanted: Iterable[str],
    complete: Callable[[Metrics], bool],
    limit: float,
    alive: Callable[[], str],
) -> Optional[Metrics]:
    """Ask until every wanted metric is there and ``complete`` holds, at most ``limit`` seconds; the last answer.

    ``alive``: why the service cannot answer any more, "" while it may. Raises NoMetrics where none came at all.
    """
    names: FrozenSet[str] = frozenset(wanted)
    deadline = time.monotonic() + limit
    last: Optional[Metrics] = None
    while True:
        trouble = ""
        try:
            last = ask()
            if last is None or (names <= last.names and complete(last)):
                return last
        except NoMetrics as error:
            trouble = str(error)
        ended = alive()
        if ended:
            raise NoMetrics(ended)
        if time.monotonic() >= deadline:
            if last is None:
                raise NoMetrics(f"{trouble}, for {limit:g} s")
            return last
        time.sleep(_PAUSE)


def where(address: str) -> str:
    """Host and port at which an exporter that listens on ``address`` is asked from its own host."""
    host, _colon, port = address.rpartition(":")
    reached: Dict[str, str] = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # nosec B104
    return f"{reached.get(host, host)}:{port}"


def missing(wanted: Iterable[str], found: Metrics) -> List[str]:
    """Wanted metrics that did not come, in their order."""
    return [name for name in wanted if name not in found.names]
