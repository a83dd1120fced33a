# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes control plane in a folder: etcd, API server, controller manager and scheduler, on free ports.

    python -m ansible_collections.gpufleet.nvidia.tests.testbed.cluster up|down|status --dir DIR

Everything that a cluster is lies in its folder: certificates, data, ports, kubeconfigs, audit log, logs and pids.
Several clusters run beside each other. Each user of the testbed has a name of its own, so that the audit log tells
who wrote.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import http.client
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority, write_key
from ansible_collections.gpufleet.nvidia.tests.testbed.processes import Process

HOST = "127.0.0.1"
SERVICE_ADDRESSES = "10.96.0.0/16"
#: Name in the API of each user that the testbed knows. All may do everything; they differ in what the audit log says.
USERS = {"admin": "practice-admin", "kwok": "kwok", "simulator": "simulator", "observer": "observer"}
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: Below the range from which the kernel gives ports to outgoing connections.
PORTS = range(21000, 32000)

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ClusterError(Exception):
    """The cluster does not come up; the message says which part of it, and shows the end of its log."""


# --- Ports ------------------------------------------------------------------------------------------------------------


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _reservations() -> Iterator[dict[str, float]]:
    """Ports that some start on this machine was given in the last two minutes, and may not have bound yet."""
    path = Path(tempfile.gettempdir()) / f"gpufleet-testbed-ports-{os.getuid()}.json"
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            known = json.loads(file.read() or "{}")
        except ValueError:
            known = {}
        now = time.time()
        known = {port: given for port, given in known.items() if 0 <= now - given < 120}
        yield known
        file.seek(0)
        file.truncate()
        json.dump(known, file)


def choose_ports(names: Sequence[str], wanted: Mapping[str, int] | None = None) -> dict[str, int]:
    """A free port for each name, given to no other start meanwhile; those ``wanted`` are kept if all are free."""
    with _reservations() as known:
        wanted = dict(wanted or {})
        if set(wanted) == set(names) and all(_is_free(port) for port in wanted.values()):
            chosen = wanted
        else:
            free = (port for port in PORTS if str(port) not in known and _is_free(port))
            chosen = {name: next(free) for name in names}
        known.update({str(port): time.time() for port in chosen.values()})
    return chosen


# --- The cluster ------------------------------------------------------------------------------------------------------


class Cluster:
    """A control plane in ``dir``. Use it as a context manager in tests: up on entry, down on exit.

    ``address``: of this machine, where the API server listens; real nodes (``node/``) reach it over podman's bridge.
    """

    def __init__(self, dir: Path | str, address: str = HOST) -> None:
        self.dir = Path(dir).absolute()
        self.address = address
        self.pki = self.dir / "pki"
        #: Whether what is started ends with this Python process, however that ends.
        self.tied = False

    def __enter__(self) -> Self:
        self.tied = True
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- what others use ---

    @property
    def kubectl(self) -> Path:
        """kubectl, without any setting: give it ``--kubeconfig``."""
        return self.dir / "kubectl"

    @property
    def audit_log(self) -> Path:
        """The audit log: one JSON object a line, level Metadata, written before the answer is sent."""
        return self.dir / "audit.log"

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.ports()['kube-apiserver']}"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of one of ``USERS``."""
        if user not in USERS:
            raise ValueError(f"unknown user {user!r}; there are {', '.join(USERS)}")
        return self.dir / ("kubeconfig" if user == "admin" else f"kubeconfig-{user}")

    def ports(self) -> dict[str, int]:
        """Port by name of its component; empty where no cluster was started."""
        try:
            found: dict[str, int] = json.loads((self.dir / "ports.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def process(self, name: str) -> Process:
        return Process(self.dir, name)

    def running(self) -> dict[str, int]:
        """Pid by name of every process of this cluster that runs."""
        found = {}
        for pid_file in sorted(self.dir.glob("*.pid")):
            pid = self.process(pid_file.stem).pid()
            if pid is not None:
                found[pid_file.stem] = pid
        return found

    def is_up(self) -> bool:
        """All components run and the API server says that it is ready."""
        return set(COMPONENTS) <= set(self.running()) and self._answers("/readyz")

    def request(self, path: str, timeout: float = 5) -> tuple[int, bytes]:
        """GET ``path`` as the observer: status and body."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "observer.crt", self.pki / "observer.key")
        port = self.ports()["kube-apiserver"]
        connection = http.client.HTTPSConnection(self.address, port, context=context, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answers(self, path: str) -> bool:
        try:
            return self.request(path)[0] == 200
        except (OSError, http.client.HTTPException, KeyError):
            return False

    # --- up ---

    def up(
        self,
        admission_config: Path | Mapping[str, object] | None = None,
        *,
        fresh: bool = False,
        deadline: float = 90,
        report: programs.Report = programs.say,
    ) -> None:
        """Start what does not run. Data of an earlier start is used again, unless ``fresh``.

        ``admission_config`` is an AdmissionConfiguration (a file or its content), for clusters that restrict what an
        API server admits by default.
        """
        if not fresh and self.is_up():
            return
        self._stop()
        if fresh:
            self._remove_state()
        binary = programs.ensure("controlplane", report)
        self.dir.mkdir(parents=True, exist_ok=True)
        if not (self.dir / "etcd").exists():
            for log in self.dir.glob("*.log"):
                log.unlink()
        ports = choose_ports(("etcd", "etcd-peer", "kube-apiserver"), self.ports())
        (self.dir / "ports.json").write_text(json.dumps(ports) + "\n")
        self._write_files(binary, admission_config)
        end = time.monotonic() + deadline
        self._start("etcd", self._etcd(ports))
        self._wait("etcd", lambda: _listens(ports["etcd"]), end)
        self._start("kube-apiserver", self._apiserver(ports, admission_config is not None))
        self._wait("kube-apiserver", lambda: self._answers("/readyz"), end)
        self._start("kube-controller-manager", self._controller_manager())
        self._start("kube-scheduler", self._scheduler())
        # The controllers work when the first namespace has what they give to every namespace.
        served = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("kube-controller-manager", lambda: self._answers(served), end)

    def start_kwok(self, report: programs.Report = programs.say) -> None:
        """Start kwok, which keeps the nodes' leases and gives plain pods a life."""
        if self.process("kwok").pid() is None:
            binary = programs.ensure("kwok", report)
            # kwok takes its configuration and its stages as documents of one file.
            parts = sorted(programs.PROGRAMS["kwok"].folder.glob("*.yaml"))
            config = self.dir / "config" / "kwok.yaml"
            config.write_text("---\n".join(part.read_text() for part in parts))
            self.start("kwok", [binary, "--kubeconfig", self.kubeconfig("kwok"), "--config", config])

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """Start one more process that belongs to this cluster: ``down`` stops it too."""
        process = self.process(name)
        process.start(command, env, tied=self.tied)
        return process

    def _start(self, name: str, flags: Sequence[str]) -> None:
        # A quarter less work than Go's default of 100, for some more memory.
        self.start(name, [self.dir / "bin" / name, *flags], {"GOGC": "200"} | os.environ)

    def _wait(self, name: str, reached: Callable[[], bool], end: float) -> None:
        while not reached():
            running = self.running()
            for component in COMPONENTS:
                if (self.dir / f"{component}.pid").exists() and component not in running:
                    raise ClusterError(self._failure(component, "ended"))
            if time.monotonic() > end:
                raise ClusterError(self._failure(name, "is not ready in time"))
            time.sleep(0.05)

    def _failure(self, name: str, what: str) -> str:
        process = self.process(name)
        tail = process.tail()
        self._stop()
        return f"The testbed's control plane does not start: {name} {what}. The end of {process.log}:\n{tail}"

    # --- files ---

    def _write_files(self, binary: Path, admission_config: Path | Mapping[str, object] | None) -> None:
        for folder in ("bin", "config"):
            (self.dir / folder).mkdir(exist_ok=True)
        for name in (*COMPONENTS, "kubelet"):
            _link(self.dir / "bin" / name, binary)
        _link(self.kubectl, binary)
        authority = Authority(self.pki)
        authority.issue(
            "apiserver", "kube-apiserver",
            addresses=(
                *(HOST, self.address, "10.96.0.1"),
                *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            ),
        )  # fmt: skip
        if not (self.pki / "service-accounts.key").exists():
            write_key(self.pki / "service-accounts.key")
        for user, name in USERS.items():
            self.write_kubeconfig(self.kubeconfig(user), user, name, ("system:masters",))
        for component in ("kube-controller-manager", "kube-scheduler"):
            self.write_kubeconfig(self.dir / "config" / f"{component}.kubeconfig", component, f"system:{component}")
        self._config("audit-policy", AUDIT_POLICY)
        self._config("scheduler", {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.dir / "config" / "kube-scheduler.kubeconfig"), "qps": 1000, "burst": 2000,
            },
        })  # fmt: skip
        if isinstance(admission_config, Path):
            shutil.copy(admission_config, self.dir / "config" / "admission.yaml")
        elif admission_config is not None:
            self._config("admission", admission_config)

    def _config(self, name: str, content: Mapping[str, object]) -> None:
        (self.dir / "config" / f"{name}.yaml").write_text(yaml.safe_dump(dict(content), sort_keys=False))

    def write_kubeconfig(self, path: Path, user: str, name: str, groups: Sequence[str] = ()) -> None:
        """For one more user of the API: ``name`` in ``groups``, with a certificate in ``pki/USER.crt``."""
        authority = Authority(self.pki)
        certificate, key = authority.issue(user, name, groups)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "practice",
                "cluster": {"server": self.url, "certificate-authority-data": _base64(authority.certificate)},
            }],
            "users": [{
                "name": name,
                "user": {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)},
            }],
            "contexts": [{"name": "practice", "context": {"cluster": "practice", "user": name}}],
            "current-context": "practice",
        }  # fmt: skip
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(content, file, sort_keys=False)

    # --- flags ---

    def _etcd(self, ports: Mapping[str, int]) -> list[str]:
        client, peer = (f"http://{HOST}:{ports[name]}" for name in ("etcd", "etcd-peer"))
        return [
            "--name=practice",
            f"--data-dir={self.dir / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=practice={peer}",
            # A testbed's data may be lost with the machine; waiting for the disk would make everything slow.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver(self, ports: Mapping[str, int], admission: bool) -> list[str]:
        flags = [
            f"--etcd-servers=http://{HOST}:{ports['etcd']}",
            f"--bind-address={self.address}",
            f"--secure-port={ports['kube-apiserver']}",
            # Endpoints may not name a loopback address: one that is kept for documentation stands in.
            "--advertise-address=192.0.2.1",
            f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
            f"--client-ca-file={self.pki / 'ca.crt'}",
            f"--tls-cert-file={self.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self.pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.pki / 'service-accounts.key'}",
            f"--service-account-signing-key-file={self.pki / 'service-accounts.key'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            f"--audit-policy-file={self.dir / 'config' / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
            # In megabytes: readers remember offsets, so it must not be rotated under them.
            "--audit-log-maxsize=100000",
            "--profiling=false",
        ]
        if self.address != HOST:
            # What kubelets are asked for: logs of containers, programs run in them. A node's name is known to nobody.
            certificate, key = Authority(self.pki).issue("kubelet-client", "kube-apiserver-kubelet-client")
            flags += [
                f"--kubelet-client-certificate={certificate}",
                f"--kubelet-client-key={key}",
                "--kubelet-preferred-address-types=InternalIP",
            ]
        if admission:
            flags.append(f"--admission-control-config-file={self.dir / 'config' / 'admission.yaml'}")
        return flags

    def _controller_manager(self) -> list[str]:
        return [
            f"--kubeconfig={self.dir / 'config' / 'kube-controller-manager.kubeconfig'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={self.pki / 'ca.crt'}",
            f"--cluster-signing-key-file={self.pki / 'ca.key'}",
            f"--service-account-private-key-file={self.pki / 'service-accounts.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--enable-garbage-collector=true",
            # The default of 20 a second makes a few thousand pods take minutes.
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--secure-port=0",
            # Beyond the leases that kwok keeps (kwok/kwok.yaml): on a busy machine nodes must not seem lost.
            "--node-monitor-grace-period=20m",
            f"--flex-volume-plugin-dir={self.dir / 'volume-plugins'}",
            "--profiling=false",
        ]

    def _scheduler(self) -> list[str]:
        return [f"--config={self.dir / 'config' / 'scheduler.yaml'}", "--secure-port=0"]

    # --- down ---

    def down(self) -> None:
        """Stop every process of this cluster and remove all that it left, but its logs."""
        self._stop()
        self._remove_state()

    def _stop(self) -> None:
        # Whoever writes goes first, etcd last: nothing then complains about a server that is gone.
        names = [path.stem for path in self.dir.glob("*.pid")]
        last = {name: place for place, name in enumerate(reversed(COMPONENTS))}
        for name in sorted(names, key=lambda name: last.get(name, -1)):
            self.process(name).stop()

    def _remove_state(self) -> None:
        for folder in ("bin", "config", "etcd", "pki", "volume-plugins"):
            shutil.rmtree(self.dir / folder, ignore_errors=True)
        files = [self.kubectl, self.dir / "ports.json", *map(self.kubeconfig, USERS)]
        for path in files:
            path.unlink(missing_ok=True)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cluster", description="A real Kubernetes control plane in a folder.")
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--dir", type=Path, required=True, help="the folder that holds everything of the cluster")
    parser.add_argument("--fresh", action="store_true", help="up: forget what an earlier start left")
    parser.add_argument("--kwok", action="store_true", help="up: start kwok too")
    parser.add_argument("--admission-config", type=Path, help="up: an AdmissionConfiguration file")
    options = parser.parse_args(arguments)
    cluster = Cluster(options.dir)
    try:
        if options.command == "up":
            began = time.monotonic()
            cluster.up(options.admission_config, fresh=options.fresh)
            if options.kwok:
                cluster.start_kwok()
            programs.say(f"control plane: ready after {time.monotonic() - began:.1f} s at {cluster.url}")
        elif options.command == "down":
            cluster.down()
    except (ClusterError, programs.ProgramError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if options.command == "down" else _status(cluster)


def _status(cluster: Cluster) -> int:
    running = cluster.running()
    for name in (*COMPONENTS, *(name for name in running if name not in COMPONENTS)):
        if name in running:
            memory = cluster.process(name).memory() / 2**20
            programs.say(f"{name}: running, pid {running[name]}, {memory:.0f} MiB")
        else:
            programs.say(f"{name}: not running")
    if not cluster.is_up():
        return 1
    programs.say(f"ready: kubectl is {cluster.kubectl}, admin's kubeconfig {cluster.kubeconfig()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
