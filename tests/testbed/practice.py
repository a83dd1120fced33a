# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Practice: a real control plane with a fleet of simulated GPU nodes, and the playbooks run against it.

    python -m ansible_collections.gpufleet.nvidia.tests.testbed.practice up|down [OPTION ...]

``up`` again with the same fleet uses the running cluster again, so that a second run shows that nothing changes;
another fleet replaces it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ansible_collections.gpufleet.nvidia.tests.testbed import audit, programs
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import COMPONENTS, USERS, Cluster, ClusterError
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import fleet as simulated

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTIONS = CHECKOUT / "build" / "collections"
FLEETS = Path(__file__).resolve().parent / "fleets"
SIMULATOR = "ansible_collections.gpufleet.nvidia.tests.testbed.simulator"
#: What runs while a practice cluster is up.
PROCESSES = (*COMPONENTS, "kwok", "simulator")


class PracticeError(Exception):
    """Practice does not start; the message says what to do about it."""


def fleet_file(fleet: str | Path) -> Path:
    """The file of a fleet, given its name or the file itself."""
    named = FLEETS / f"{fleet}.yaml"
    path = named if named.is_file() else Path(fleet).absolute()
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in FLEETS.glob("*.yaml")))
        raise PracticeError(f"There is no fleet {str(fleet)!r}: name one of {known}, or a file")
    return path


class Practice:
    """A practice cluster in ``dir``. Use it as a context manager in tests: up on entry, down on exit.

    ``fleet`` is a fleet's name or file, ``nodes`` the number of nodes it is repeated to, ``speed`` how many times
    faster than life the simulated nodes work.
    """

    def __init__(
        self, dir: Path | str, fleet: str | Path = "default", nodes: int | None = None, speed: float | None = None
    ) -> None:
        self.cluster = Cluster(dir)
        self.dir = self.cluster.dir
        self.fleet = fleet
        self.nodes = nodes
        self.speed = speed
        #: Live changes for the simulator: missing images, driver states, node faults.
        self.control = self.dir / "control.yaml"

    def __enter__(self) -> Self:
        self.cluster.tied = True
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- up and down ---

    def up(self, report: programs.Report = programs.say, deadline: float = 600) -> None:
        """Start control plane, kwok and simulator, and wait for the fleet's nodes; use again what runs already."""
        path = fleet_file(self.fleet)
        self._gpu_nodes()
        # All programs first: building one takes minutes, in which nothing else should wait half started.
        for name in programs.PROGRAMS:
            programs.ensure(name, report)
        with self.alone(".lock"):
            wanted = self._description(path)
            if self.cluster.running():
                stale = self._stale(wanted)
                if not stale:
                    report(f"practice: the fleet {self.fleet} runs already and is used again")
                    return
                report(f"practice: {stale}; what runs is replaced")
            self._start(path, report, deadline)
            (self.dir / "practice.json").write_text(json.dumps(wanted, indent=1) + "\n")

    def down(self) -> None:
        """Stop everything and remove all but the logs."""
        if not self.dir.exists():
            return
        with self.alone(".lock"):
            self._forget()
            self.cluster.down()

    @contextlib.contextmanager
    def alone(self, name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a lock of this folder; call ``waiting`` first when another run holds it.

        ``.lock`` guards starting and stopping. ``.run`` is held by a whole run on the command line, playbook
        included, so that no second one replaces the cluster under it; ``down`` does not ask for that one.
        """
        self.dir.mkdir(parents=True, exist_ok=True)
        with (self.dir / name).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _forget(self) -> None:
        for name in ("practice.json", "simulator.ready", "control.yaml", "hosts.json"):
            (self.dir / name).unlink(missing_ok=True)
        shutil.rmtree(self.dir / "ansible", ignore_errors=True)

    def _description(self, path: Path) -> dict[str, Any]:
        """What the cluster is made from: a difference in any of it means another cluster."""
        digest = hashlib.sha256(path.read_bytes())
        for source in sorted((Path(__file__).resolve().parent / "simulator").rglob("*.py")):
            digest.update(source.read_bytes())
        return {"fleet": str(path), "nodes": self.nodes, "speed": self.speed, "content": digest.hexdigest()}

    def _stale(self, wanted: dict[str, Any]) -> str:
        """Why the cluster that runs cannot be used for what is wanted; empty when it can."""
        try:
            found = json.loads((self.dir / "practice.json").read_text())
        except (OSError, ValueError):
            return "an earlier start was not finished"
        for name in ("fleet", "nodes", "speed"):
            if found.get(name) != wanted[name]:
                return f"another {name} was asked for"
        if found.get("content") != wanted["content"]:
            return "the fleet's file or the simulator has changed"
        ended = sorted(set(PROCESSES) - set(self.cluster.running()))
        if ended:
            return f"{', '.join(ended)} ended"
        return "" if self.cluster.is_up() else "the API server is not ready"

    def _start(self, path: Path, report: programs.Report, deadline: float) -> None:
        began = time.monotonic()
        self._forget()
        self.cluster.up(fresh=True, report=report)
        report(f"practice: control plane ready after {time.monotonic() - began:.1f} s at {self.cluster.url}")
        self.cluster.start_kwok(report)
        ready = self.dir / "simulator.ready"
        command: list[str | Path] = [
            sys.executable, "-m", SIMULATOR, "--kubeconfig", self.cluster.kubeconfig("simulator"), "--fleet", path,
            "--ready-file", ready, "--control", self.control, "--hosts-file", self.dir / "hosts.json",
        ]  # fmt: skip
        if self.nodes is not None:
            command += ["--nodes", str(self.nodes)]
        if self.speed is not None:
            command += ["--speed", f"{self.speed:g}"]
        self.control.touch()
        simulator = self.cluster.start("simulator", command, env={**os.environ, "PYTHONPATH": str(COLLECTIONS)})
        told = began = time.monotonic()
        while not ready.exists():
            now = time.monotonic()
            if simulator.pid() is None or now - began > deadline:
                what = "ended" if simulator.pid() is None else "has not made the fleet's nodes in time"
                tail = simulator.tail()
                self.cluster.down()
                raise PracticeError(f"The simulator of GPU nodes {what}. The end of {simulator.log}:\n{tail}")
            if now - told >= 10:
                report(f"practice: the simulator makes the fleet's nodes, {now - began:.0f} s so far")
                told = now
            time.sleep(0.05)
        report(f"practice: {len(self.node_objects())} nodes of the fleet {self.fleet} are there")

    # --- playbooks ---

    def playbook(
        self, name: str, *arguments: str, values: Sequence[Path | str] = (), stream: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run ``playbooks/NAME.yml`` as the admin, with Helm values files; its output is captured unless ``stream``.

        It never raises for a playbook that fails: look at ``returncode``.
        """
        variables: dict[str, Any] = {"gpufleet_kubeconfig": str(self.cluster.kubeconfig())}
        if values:
            variables["cluster_policy_policy_files"] = [str(Path(path).absolute()) for path in values]
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventories/practice",
            f"playbooks/{name}.yml", "-e", json.dumps(variables), *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            # Ansible's own temporary files stay in the practice folder too.
            "ANSIBLE_HOME": str(self.dir / "ansible"),
            "PYTHONUNBUFFERED": "1",
        }
        if stream:
            return subprocess.run(command, cwd=CHECKOUT, env=environment, text=True, check=False)
        return subprocess.run(
            command, cwd=CHECKOUT, env=environment, text=True, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    # --- looking ---

    def audit_offset(self) -> int:
        """Where the audit log ends now, for ``writes(since=...)``."""
        return audit.offset(self.cluster.audit_log)

    def writes(self, user: str = USERS["admin"], since: int = 0) -> list[audit.Request]:
        """The user's writes to the API behind the offset ``since``."""
        return audit.writes(self.cluster.audit_log, user, since)

    def hosts(self, deadline: float = 20) -> dict[str, Any]:
        """What no API tells of the simulated hosts: node -> ``files`` (names of its status files), ``gpus``, and
        ``hurt`` (pods that a GPU was taken from)."""
        told = self.dir / "hosts.json"
        told.unlink(missing_ok=True)
        pid = self.cluster.process("simulator").pid()
        if pid is None:
            raise PracticeError("The simulator of GPU nodes does not run")
        os.kill(pid, signal.SIGUSR2)
        end = time.monotonic() + deadline
        while not told.exists():
            if time.monotonic() > end:
                raise PracticeError(f"The simulator has not written {told}")
            time.sleep(0.02)
        return dict(json.loads(told.read_text()))

    def idle_nodes(self) -> list[str]:
        """Names of the nodes that have GPUs by the fleet's description, and are not Ready or offer no GPU."""
        offers = {node["metadata"]["name"]: _offers_gpus(node) for node in self.node_objects()}
        return [name for name in self._gpu_nodes() if not offers.get(name)]

    def _gpu_nodes(self) -> list[str]:
        """Names of the fleet's nodes that have GPUs, by its file."""
        try:
            fleet = simulated.load(str(fleet_file(self.fleet)), self.nodes)
        except simulated.FleetError as error:
            raise PracticeError(str(error)) from None
        return [spec.name for spec in fleet if spec.gpus]

    def node_objects(self) -> list[dict[str, Any]]:
        """All Node objects, read as the observer."""
        status, body = self.cluster.request("/api/v1/nodes", timeout=60)
        if status != 200:
            raise PracticeError(f"The API server answers {status} when asked for its nodes")
        nodes: list[dict[str, Any]] = json.loads(body)["items"]
        return nodes


def _offers_gpus(node: dict[str, Any]) -> bool:
    ready = {condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"}
    offered = {name: count for name, count in node["status"]["allocatable"].items() if name.startswith("nvidia.com/")}
    return ready == {"True"} and any(int(count) > 0 for count in offered.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="practice", description="A GPU fleet to practise on: a real control plane with simulated GPU nodes."
    )
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--dir", type=Path, default=CHECKOUT / "build" / "practice", help="folder of the cluster")
    parser.add_argument("--fleet", default="default", help="name of a fleet (tests/testbed/fleets), or a file")
    parser.add_argument("--nodes", type=int, help="number of nodes that the fleet is repeated to")
    parser.add_argument("--speed", type=float, help="how many times faster than life the simulated nodes work")
    parser.add_argument("--values", type=Path, action="append", default=[], help="Helm values file; may be repeated")
    parser.add_argument("--no-playbook", action="store_true", help="start the fleet only")
    options = parser.parse_args(arguments)
    practice = Practice(options.dir, options.fleet, options.nodes, options.speed)
    try:
        if options.command == "down":
            practice.down()
            return 0
        missing = [str(path) for path in options.values if not path.is_file()]
        if missing:
            raise PracticeError(f"There is no values file {', '.join(missing)}")
        busy = f"practice: another run uses {practice.dir}; waiting for its end"
        with practice.alone(".run", lambda: programs.say(busy)):
            practice.up()
            return 0 if options.no_playbook else _run(practice, options.values)
    except (ClusterError, PracticeError, programs.ProgramError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(practice: Practice, values: Sequence[Path]) -> int:
    """Run the main playbook, show the nodes, and judge both."""
    since = practice.audit_offset()
    site = practice.playbook("site", values=values, stream=True)
    programs.say(f"practice: {len(practice.writes(since=since))} API writes by {USERS['admin']} in this run")
    status = practice.playbook("status", stream=True)
    idle = practice.idle_nodes()
    if idle:
        programs.say(f"practice: these nodes have GPUs and offer none: {', '.join(idle)}")
    return site.returncode or status.returncode or int(bool(idle))


if __name__ == "__main__":
    sys.exit(main())
