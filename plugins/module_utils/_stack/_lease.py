# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time (S42), and a record of the last ones (S62): a Lease that a run holds while it writes.

It is taken before the first write and not at all by a run that has nothing to write. A holder renews it; one that was
killed is known to be gone when it ran on this machine, and after ``DURATION`` everywhere else.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import uuid
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._connection import ApiError, Connection, Deadline, KubeError
from .._kube._resources import MANAGED_BY, MANAGER, Object, path, resource

NAME = "gpufleet"
DURATION = 60  # seconds without renewal, by the own clock of who looks, after which a holder counts as gone
LONG_GONE = 5 * DURATION  # the same by the time on the lease: clocks of two machines differ
RENEW_EVERY = 20.0
GIVE_UP = 40.0  # seconds after the last renewal when a holder that cannot renew stops: before others take over
ANSWER_WITHIN = 10.0  # seconds that a write of the lease may take, tries included
LOOK_EVERY = 2.0
PROCESS = "gpufleet.io/process"  # annotation: which process on which machine holds the lease
RUNS = "gpufleet.io/runs"  # annotation: the last runs, newest first
KEPT_RUNS = 20
KEPT_CHANGES = 20  # names of changes that a record holds

Progress = Callable[[str], None]


class Held(KubeError):
    """Another run holds the lease. ``holder`` is its identity, ``since`` when it took the lease."""

    def __init__(self, holder: str, since: str) -> None:
        self.holder = holder
        self.since = since
        super().__init__(f"another run works on this cluster: {holder}, since {since}")


class Lease:
    """The lease of one run. ``wait`` seconds are spent at most until another run has ended."""

    def __init__(self, connection: Connection, namespace: str, wait: float, progress: Progress) -> None:
        self.connection = connection
        self.namespace = namespace
        self.patience = wait
        self.progress = progress
        self.identity = f"{_user()}@{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.began = _now()
        self.by = ""
        self._live: Optional[Object] = None
        self._lost = ""
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._over = threading.Event()
        self._keeper: Optional[threading.Thread] = None

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{NAME}"

    def take(self, deadline: Optional[Deadline] = None) -> bool:
        """Hold the lease from now on. True when another run held it in the meantime, so that a plan may be old.

        Returns at once when it is held already. Raises ``Held`` when another run does not end in time, and
        ``KubeError`` when this run has lost it. A namespace that is not there raises ``ApiError`` (404).
        """
        with self._taking:
            if self._lost:
                raise KubeError(self._lost)
            return self._live is None and not self._over.is_set() and self._take(deadline)

    def _take(self, deadline: Optional[Deadline]) -> bool:
        limit = Deadline(min(self.patience, deadline.left) if deadline else self.patience)
        met = False
        seen: Tuple[str, Deadline] = ("", Deadline(DURATION))
        while True:
            live = self.connection.find(self._path())
            if live is not None and _holder(live) == self.identity:  # the answer to our write was lost
                self._live = live
                break
            renewed = str(((live or {}).get("spec") or {}).get("renewTime"))
            if seen[0] != f"{_holder(live or {})} {renewed}":
                seen = (f"{_holder(live or {})} {renewed}", Deadline(DURATION))
            if live is not None and not _free(live) and not seen[1].passed:
                met = True
                held = Held(_holder(live), str(live["spec"].get("acquireTime") or "unknown"))
                if limit.passed:
                    raise held
                self.progress(f"{held}; waiting, {limit.left:.0f} s left")
                self._over.wait(min(LOOK_EVERY, max(limit.left, 0.05)))
                continue
            if self._write(self._claim(live)):
                break
        if not self.by:
            self.by = self._whoami()
        self._keeper = threading.Thread(target=self._renew, daemon=True, name="lease")
        self._keeper.start()
        return met

    def release(self, record: Mapping[str, Any]) -> None:
        """Give the lease back and leave a record of this run on it; does nothing when it is not held."""
        self._over.set()
        if self._keeper is not None:
            self._keeper.join(timeout=RENEW_EVERY)
        with self._lock:
            if self._live is None or self._lost:
                return
            entry = {"start": self.began, "end": _now(), "by": self.by, "from": self.identity, **record}
            body = dict(self._live)
            notes = dict(body["metadata"].get("annotations") or {})
            notes.pop(PROCESS, None)
            notes[RUNS] = json.dumps([entry, *runs_of(body)][:KEPT_RUNS], separators=(",", ":"))
            body["metadata"] = dict(body["metadata"], annotations=notes)
            body["spec"] = dict(body["spec"], holderIdentity="", renewTime=_now())
            self._live = None
        try:
            self.connection.request("PUT", self._path(), body=body, idempotent=True)
        except ApiError as error:
            if error.status not in (404, 409):  # gone with its namespace, or taken by somebody who saw us gone
                raise

    def remove(self) -> None:
        """Delete the lease with its records; the run that removes everything does not leave it behind."""
        self._over.set()
        with self._lock:
            if self._live is None or self._lost:
                return
            uid = self._live["metadata"]["uid"]
            self._live = None
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        try:
            self.connection.request("DELETE", self._path(), body=body)
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another one by now
                raise

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _path(self, name: str = NAME) -> str:
        return path("Lease", self.namespace, name)

    def _claim(self, live: Optional[Object]) -> Object:
        """The lease as this run's, made from what is there."""
        meta: Dict[str, Any] = {"name": NAME, "namespace": self.namespace, "labels": {MANAGED_BY: MANAGER}}
        spec: Mapping[str, Any] = {}
        notes: Dict[str, str] = {}
        if live is not None:
            meta, spec = dict(live["metadata"]), live.get("spec") or {}
            notes = dict(meta.get("annotations") or {})
            if spec.get("holderIdentity"):
                # It was killed, so it could not say so itself.
                began = spec.get("acquireTime")
                killed = {"start": began, "end": "", "from": spec["holderIdentity"], "ended": "killed"}
                notes[RUNS] = json.dumps([killed, *runs_of(live)][:KEPT_RUNS], separators=(",", ":"))
        now = _now()
        return {
            "apiVersion": resource("Lease").api_version,
            "kind": "Lease",
            "metadata": dict(meta, annotations=dict(notes, **{PROCESS: _process()})),
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": DURATION,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
            },
        }

    def _write(self, body: Object) -> bool:
        """Create or replace the lease; False when somebody else was faster."""
        new = "resourceVersion" not in body["metadata"]
        method, where = ("POST", self._path("")) if new else ("PUT", self._path())
        try:
            # Twice is a conflict. Late is as bad as never: the time on it is that of the first try.
            answer = self.connection.request(
                method, where, body=body, idempotent=True, deadline=Deadline(ANSWER_WITHIN)
            )
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        with self._lock:
            self._live = answer.body
        return True

    def _renew(self) -> None:
        """Keep the lease until it is given back."""
        expiry = Deadline(GIVE_UP)
        while not self._over.wait(RENEW_EVERY if expiry.left >= GIVE_UP - 1 else 1.0):
            with self._lock:
                if self._live is None:
                    return
                now = Deadline(GIVE_UP)
                body = dict(self._live, spec=dict(self._live["spec"], renewTime=_now()))
                try:
                    self._live = self.connection.request(
                        "PUT", self._path(), body=body, deadline=Deadline(ANSWER_WITHIN)
                    ).body
                    expiry = now
                    continue
                except KubeError as error:
                    gone = isinstance(error, ApiError) and error.status in (404, 409) and not self._still_mine()
                    if gone or expiry.passed:
                        self._lost = (
                            f"this run lost the lease {self.namespace}/{NAME}, which keeps runs apart ({error}); "
                            "it stops here, since another run may work on the cluster"
                        )
                        return

    def _still_mine(self) -> bool:
        """After a conflict: whether only something else of the lease was changed, as far as can be seen."""
        try:
            live = self.connection.find(self._path(), deadline=Deadline(ANSWER_WITHIN))
        except KubeError:
            return True  # the next renewal tells
        if live is None or _holder(live) != self.identity:
            return False
        self._live = live
        return True

    def _whoami(self) -> str:
        """The user name by which the API server knows this run."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        where = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        try:
            answer = self.connection.request("POST", where, body=body, idempotent=True)
        except KubeError:
            return "unknown"
        return str(answer.body.get("status", {}).get("userInfo", {}).get("username") or "unknown")


def record(what: str, policy_hash: str, changes: List[str], ended: str) -> Dict[str, Any]:
    """What a run leaves: ``{what, policy, changes (count), changed (names), ended}``; who and when the lease adds."""
    return {
        "what": what,
        "policy": policy_hash,
        "changes": len(changes),
        "changed": changes[:KEPT_CHANGES],
        "ended": ended[:300],
    }


def runs_of(live: Optional[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Records of the last runs, newest first; [] where there are none that can be read."""
    text = ((live or {}).get("metadata") or {}).get("annotations", {}).get(RUNS, "[]")
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def read_runs(connection: Connection, namespace: str) -> List[Dict[str, Any]]:
    """Records of the last runs on a cluster, newest first."""
    return runs_of(connection.find(path("Lease", namespace, NAME)))


def runs_text(runs: Sequence[Mapping[str, Any]]) -> List[str]:
    """Lines for a person: when, who, what came of it."""
    found = []
    for run in runs:
        who = run.get("by") or run.get("from") or "unknown"
        count = f", {run['changes']} changes" if "changes" in run else ""
        found.append(f"run {str(run.get('start'))[:19]}Z by {who}: {run.get('what', 'run')} {run.get('ended')}{count}")
    return found


def _holder(live: Mapping[str, Any]) -> str:
    return str((live.get("spec") or {}).get("holderIdentity") or "")


def _free(live: Mapping[str, Any]) -> bool:
    """Whether nobody holds the lease, or its holder is gone."""
    if not _holder(live):
        return True
    if _is_dead(((live["metadata"].get("annotations")) or {}).get(PROCESS, "")):
        return True
    spec = live["spec"]
    try:
        renewed = datetime.strptime(str(spec.get("renewTime")), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return True
    return (datetime.now(timezone.utc) - renewed).total_seconds() > LONG_GONE


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid {os.getuid()}"


def _process() -> str:
    """Names this process so that others on this machine can see whether it still runs; "" where that cannot be said."""
    where = _machine()
    start = _started(os.getpid())
    return f"{where}/{os.getpid()}/{start}" if where and start else ""


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return f"{stream.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this machine started, in the kernel's ticks; "" when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _is_dead(process: str) -> bool:
    """Whether a process named by ``_process`` ran on this machine and is no more."""
    where, _slash, rest = process.rpartition("/")
    where, _slash, pid = where.rpartition("/")
    if not where or where != _machine() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # another user's, whose details may be hidden
    return _started(int(pid)) != rest
