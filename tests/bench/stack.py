# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole stack, applied to a real control plane: our one task beside kubernetes.core and kubectl.

All apply the same objects, made by our own operands, in turns of changing order: to a cluster without them (first),
then again (noop). Two nodes carry the labels of GPU nodes already, and a taint that keeps pods away, so that nothing
but the tool works while it is measured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import OURS, path, ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd, build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._namespace import namespace
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import node_facts, slim_node, with_nodes
from ansible_collections.gpufleet.nvidia.tests.bench import machine, peers
from ansible_collections.gpufleet.nvidia.tests.bench.figures import AT_LEAST, AT_MOST, Goal, Row, Sample, row
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import USERS, Cluster
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import Report

HOME = CHECKOUT / "build" / "bench"
INSIDE = "ansible_collections.gpufleet.nvidia.tests.bench.inside"
PATIENCE = 900  # seconds that one run of a tool may take


class BenchError(Exception):
    """A measurement would not be worth anything; the message says why."""


# --- what is measured -------------------------------------------------------------------------------------------------

TOOLS = {
    "ours": "gpufleet.nvidia.cluster_policy, one task",
    "loop": "kubernetes.core.k8s, one task in a loop",
    "single": "kubernetes.core.k8s, one task with src",
    "kubectl": "kubectl apply --server-side",
}
FASTER = Goal(AT_LEAST, 1)


@dataclass(frozen=True)
class Figure:
    """``ours`` and ``theirs`` name measurements: tool, phase, what."""

    name: str
    unit: str
    ours: str
    theirs: str
    peer: str
    goal: Goal | None = None

    @property
    def tools(self) -> set[str]:
        return {name.split(".")[0] for name in (self.ours, self.theirs)}


def _figures() -> Iterator[Figure]:
    for phase, bound in (("first", 15), ("noop", 20)):
        for tool, suffix, goal in (
            ("loop", "", Goal(AT_LEAST, bound)),
            ("single", ".single", FASTER),
            ("kubectl", ".kubectl", None),
        ):
            name, ours, theirs, peer = f"stack.{phase}{suffix}", f"ours.{phase}", f"{tool}.{phase}", TOOLS[tool]
            yield Figure(name, "s", f"{ours}.seconds", f"{theirs}.seconds", peer, goal)
            for what in ("requests", "writes"):
                yield Figure(f"{name}.{what}", what, f"{ours}.{what}", f"{theirs}.{what}", peer)
    above = "ansible -m ping, and import kubernetes"
    yield Figure("stack.noop.overhead", "s", "ours.noop.overhead", "ours.noop.base", above, Goal(AT_MOST, 1))
    kubectl = TOOLS["kubectl"]
    yield Figure("stack.module.noop", "s", "ours.inside.seconds", "kubectl.noop.seconds", kubectl, FASTER)
    kinds = "kinds of objects that it reads"
    yield Figure("stack.module.noop.requests", "requests", "ours.inside.requests", "ours.inside.kinds", kinds, FASTER)
    yield Figure(
        "stack.module.noop.writes", "writes", "ours.inside.writes", "kubectl.noop.writes", kubectl, Goal(AT_MOST, 0)
    )


FIGURES = tuple(_figures())
NAMES = tuple(figure.name for figure in FIGURES)


def run(names: set[str], repeats: int, report: Report) -> list[Row]:
    """Measure what the figures of these names need. Raises BenchError, PeerError, ClusterError, ProgramError."""
    figures = [figure for figure in FIGURES if figure.name in names]
    tools = [tool for tool in TOOLS if any(tool in figure.tools for figure in figures)]
    stated = machine.stated(machine.load())  # before anything of ours makes it work
    programs = peers.environment(report)
    Cluster(HOME / "cluster").down()  # what a bench that was ended half-way left
    with Cluster(HOME / "cluster") as cluster:
        cluster.start_kwok(report)
        bench = Bench(cluster, programs, report)
        bench.prepare(tools)
        for number in range(repeats):
            for tool in order(tools, number):
                report(f"stack: {number + 1} of {repeats}: {TOOLS[tool]}")
                bench.turn(tool)
        more = {**stated, "with": bench.versions(), "objects": len(bench.objects)}
        return [_row(figure, bench.seen, more) for figure in figures]


def order(tools: Sequence[str], number: int) -> list[str]:
    """Another tool begins in each repeat, and every second repeat goes backwards."""
    start = number % len(tools)
    turned = [*tools[start:], *tools[:start]]
    return turned[::-1] if number % 2 else turned


def _row(figure: Figure, seen: Mapping[str, Sequence[float]], more: Mapping[str, Any]) -> Row:
    ours, theirs = (Sample(tuple(seen[name])) for name in (figure.ours, figure.theirs))
    return row(figure.name, figure.unit, ours, figure.peer, theirs, figure.goal, **more)


# --- the cluster and its objects --------------------------------------------------------------------------------------

FEATURE = "feature.node.kubernetes.io"
NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"bench-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": f"bench-{number}",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                f"{FEATURE}/pci-10de.present": "true",
                f"{FEATURE}/system-os_release.ID": "ubuntu",
                f"{FEATURE}/system-os_release.VERSION_ID": "24.04",
                f"{FEATURE}/kernel-version.full": "6.8.0-60-generic",
            },
        },
        "spec": {"taints": [{"key": "bench", "effect": "NoSchedule"}]},
    }
    for number in (1, 2)
]


def stack_objects() -> list[dict[str, Any]]:
    """Every object of the stack of the chart's defaults on these nodes, in our order."""
    policy, _unused = load({})
    if policy is None:
        raise BenchError("the empty policy is refused")
    facts = with_nodes(ClusterFacts(), [node_facts(slim_node(node)) for node in NODES])
    return [namespace(policy, facts), *_nfd.crds(), *_nfd.build(policy, facts), *build(policy, facts)]


PLAYS: dict[str, dict[str, Any]] = {
    "ours": {
        "gpufleet.nvidia.cluster_policy": {"kubeconfig": "{{ kubeconfig }}", "policy": {}, "wait": False},
    },
    "loop": {
        "kubernetes.core.k8s": {"kubeconfig": "{{ kubeconfig }}", "state": "present", "definition": "{{ item }}"},
        "loop": "{{ lookup('ansible.builtin.file', manifests) | from_yaml_all | list }}",
        "loop_control": {"label": "{{ item.kind }} {{ item.metadata.name }}"},
    },
    "single": {
        "kubernetes.core.k8s": {"kubeconfig": "{{ kubeconfig }}", "state": "present", "src": "{{ manifests }}"},
    },
}


class Bench:
    """A cluster on which the tools take turns. ``seen``: what was measured, by tool, phase and what."""

    def __init__(self, cluster: Cluster, programs: Path, report: Report) -> None:
        self.cluster = cluster
        self.programs = programs
        self.report = report
        self.objects = stack_objects()
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.files = cluster.dir / "files"
        self.manifests = self.files / "manifests.yaml"

    # --- commands ---

    def command(self, tool: str) -> list[str | Path]:
        if tool == "kubectl":
            return self.kubectl("admin", "apply", "--server-side", "-f", self.manifests)
        variables = {"kubeconfig": str(self.cluster.kubeconfig()), "manifests": str(self.manifests)}
        play = self.files / f"{tool}.yml"
        return [self.programs / "ansible-playbook", "-i", "localhost,", play, "-e", json.dumps(variables)]

    def kubectl(self, user: str, *arguments: str | Path) -> list[str | Path]:
        return [self.cluster.kubectl, "--kubeconfig", self.cluster.kubeconfig(user), *arguments]

    def timed(self, command: Sequence[str | Path]) -> tuple[float, str]:
        """Seconds of a whole process, and its output. Raises BenchError where it fails."""
        words = " ".join(Path(str(word)).name for word in command[:4])
        began = time.perf_counter()
        try:
            ended = subprocess.run(
                command, cwd=self.files, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False, timeout=PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BenchError(f"`{words} ...` did not end within {PATIENCE} s") from None
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise BenchError(f"`{words} ...` failed with status {ended.returncode}:\n{ended.stdout[-3000:]}")
        return seconds, ended.stdout

    def environment(self) -> dict[str, str]:
        """The same for all: no settings of the person, all files in the bench's folder, caches kept between runs."""
        kept = {name: value for name, value in os.environ.items() if not re.match(r"ANSIBLE_|K8S_|KUBE|PYTHON", name)}
        return kept | {
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build" / "collections"),
            "ANSIBLE_CONFIG": str(self.files / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.files / "ansible"),
            "ANSIBLE_REMOTE_TEMP": str(self.files / "ansible" / "tmp"),
            "HOME": str(self.files),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT / "build" / "collections"),
            "TMPDIR": str(self.files / "tmp"),
        }

    # --- preparation ---

    def prepare(self, tools: Sequence[str]) -> None:
        """Write files, make the nodes, and let every tool run once so that none pays for caches of the first run."""
        shutil.rmtree(self.files, ignore_errors=True)
        (self.files / "tmp").mkdir(parents=True)
        (self.files / "ansible.cfg").touch()
        self.manifests.write_text("".join(f"---\n{json.dumps(obj)}\n" for obj in self.objects), encoding="utf-8")
        for name, task in PLAYS.items():
            play = {"name": TOOLS[name], "hosts": "localhost", "connection": "local", "gather_facts": False}
            play |= {"vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}}
            play |= {"tasks": [{"name": "The whole stack", **task}]}
            (self.files / f"{name}.yml").write_text(json.dumps([play], indent=1), encoding="utf-8")
        nodes = self.files / "nodes.json"
        nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": NODES}), encoding="utf-8")
        self.timed(self.kubectl("observer", "create", "-f", nodes))
        self.report(f"stack: {len(self.objects)} objects; each tool runs once unmeasured")
        # Ours first: it labels the nodes, which stay labelled, so that no measured run of any tool touches a node.
        # The loop is the single task's code.
        for tool in ["ours", *(tool for tool in tools if tool not in ("ours", "loop"))]:
            self.timed(self.command(tool))
            self.expect_all(tool)
            self.serve()
            if tool == "ours":
                self.base()
                self.inside()
            self.clean()

    def clean(self) -> None:
        """Take all objects away, and wait until they are gone and the controllers are done."""
        self.settle()
        self.timed(self.kubectl("observer", "delete", "--ignore-not-found", "--wait=false", "-f", self.manifests))
        end = time.monotonic() + 180
        nudge = time.monotonic() + 8
        while left := self.labelled():
            if time.monotonic() > end:
                raise BenchError(f"{len(left)} objects do not go away: {', '.join(sorted(left)[:5])}")
            if time.monotonic() > nudge:
                nudge += 8
                self.nudge()
            time.sleep(0.3)
        self.settle()

    def nudge(self) -> None:
        """A change makes the API server look again at CRDs that wait to go.

        It gives up on one that is deleted within seconds of its creation, while its storage is being set up.
        """
        mark = f"bench/again={time.monotonic():.0f}"
        with suppress(BenchError):  # one that went meanwhile
            self.timed(self.kubectl("observer", "annotate", "--overwrite", "crd", "-l", OURS, mark))

    def settle(self) -> None:
        """Until the API server had nothing to do for half a second; 10 seconds at most."""
        end = time.monotonic() + 10
        size = -1
        while size != audit.offset(self.cluster.audit_log) and time.monotonic() < end:
            size = audit.offset(self.cluster.audit_log)
            time.sleep(0.5)

    def serve(self) -> None:
        """Until the API server answers for the new kinds.

        The first request for a kind after its CRD was made is told to come again in a second. Who happens to send that
        one should not be seen in the figures of a run with nothing to do.
        """
        end = time.monotonic() + 60
        for crd in (obj["spec"] for obj in self.objects if obj["kind"] == "CustomResourceDefinition"):
            where = f"/apis/{crd['group']}/{crd['versions'][0]['name']}/{crd['names']['plural']}"
            while self.cluster.request(where)[0] != 200:
                if time.monotonic() > end:
                    raise BenchError(f"the API server does not serve {where}")
                time.sleep(0.1)

    def labelled(self) -> set[str]:
        """Every object with our label, of the kinds of the stack."""
        found = set()
        for kind in {obj["kind"] for obj in self.objects}:
            status, body = self.cluster.request(f"{path(kind)}?labelSelector={OURS}", timeout=60)
            if status != 200:
                raise BenchError(f"the API server answers {status} when asked for objects of the kind {kind}")
            found |= {str(ref({**item, "kind": kind})) for item in json.loads(body)["items"]}
        return found

    def expect_all(self, tool: str) -> None:
        """All objects are there, and no other: otherwise the tools would not be doing the same work."""
        wanted, found = {str(ref(obj)) for obj in self.objects}, self.labelled()
        if wanted != found:
            differing = ", ".join(sorted(wanted ^ found)[:5])
            raise BenchError(f"after {TOOLS[tool]} the objects are not those of the stack: {differing}")

    # --- measuring ---

    def turn(self, tool: str) -> None:
        """One tool: first run, run with nothing to do, and for ours what the latter consists of."""
        with self.counted(f"{tool}.first") as keep:
            keep(*self.timed(self.command(tool)))
        self.expect_all(tool)
        self.serve()
        self.settle()
        with self.counted(f"{tool}.noop") as keep:
            seconds, output = self.timed(self.command(tool))
            keep(seconds, output)
        if tool == "ours":
            self.expect_unchanged(output)
            base = self.base()
            self.seen["ours.noop.base"].append(base)
            self.seen["ours.noop.overhead"].append(seconds - base)
            with self.counted("ours.inside") as keep:
                keep(self.inside(), "")
        self.clean()

    @contextmanager
    def counted(self, name: str) -> Iterator[Callable[[float, str], None]]:
        """Gives a function that keeps a measurement; counts the requests that the tool sent meanwhile."""
        since = audit.offset(self.cluster.audit_log)

        def keep(seconds: float, output: str) -> None:
            self.seen[f"{name}.seconds"].append(seconds)
            self.report(f"stack: {name}: {seconds:.2f} s")

        yield keep
        sent = list(audit.requests(self.cluster.audit_log, USERS["admin"], since))
        self.seen[f"{name}.requests"].append(len(sent))
        self.seen[f"{name}.writes"].append(sum(request.is_write for request in sent))
        self.seen[f"{name}.kinds"].append(len({request.resource.partition("/")[0] for request in sent}))

    def expect_unchanged(self, output: str) -> None:
        if not re.search(r"changed=0 .*failed=0", output):
            raise BenchError(f"our second run has changed something:\n{output[-3000:]}")

    def base(self) -> float:
        """Seconds below which no module that uses the package can stay: Ansible's own, and the import."""
        ping, _unused = self.timed(
            [self.programs / "ansible", "-i", "localhost,", "-c", "local", "localhost", "-m", "ping"]
        )
        code = "import time; began = time.perf_counter(); import kubernetes; print(time.perf_counter() - began)"
        return ping + float(self.timed([self.programs / "python", "-c", code])[1])

    def inside(self) -> float:
        """Seconds of our module's work in a process of its own, without imports."""
        _unused, output = self.timed([self.programs / "python", "-m", INSIDE, str(self.cluster.kubeconfig())])
        answer = json.loads(output)
        if answer["changed"]:
            raise BenchError("our module has changed something in a run that had nothing to do")
        return float(answer["seconds"])

    def versions(self) -> str:
        """What was measured, in words."""
        _unused, printed = self.timed([self.programs / "ansible-galaxy", "collection", "list", "kubernetes.core"])
        core = re.search(r"kubernetes\.core\s+(\S+)", printed)
        _unused, ansible = self.timed([self.programs / "ansible", "--version"])
        found = re.search(r"core ([^\]]+)\]", ansible)
        _unused, kubectl = self.timed([self.cluster.kubectl, "version", "--client"])
        client = re.search(r"v\d\S+", kubectl)
        names = {"kubernetes.core": core and core.group(1), "kubectl": client and client.group(0)}
        names["ansible-core"] = found and found.group(1)
        return ", ".join(f"{name} {version}" for name, version in names.items() if version)
