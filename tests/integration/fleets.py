# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets to run modules against, for all folders of integration tests: each is started once in a session.

A test takes a fleet as the one before left it, since the stack comes to its policy from any state; those that need a
fleet without a stack say ``empty()``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.doc_fragments.cluster import ModuleDocFragment
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._explain_read import gpu_explain
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._images import stack_images
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._preflight import cluster_preflight
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._quota import gpu_quota
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._trial_run import gpu_trial
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._run import reconciler
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _stages
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._gpu_nodes import gpu_nodes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._info import gpu_cluster_info
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._mig_node import mig_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._parts import dcgm_exporter, device_plugin
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._stack import cluster_policy
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import document
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import Practice

VALUES = Path(__file__).resolve().parents[1] / "fixtures" / "values"
MODULES: dict[str, Callable[..., Any]] = {
    "cluster_policy": cluster_policy,
    "device_plugin": device_plugin,
    "dcgm_exporter": dcgm_exporter,
    "gpu_nodes": gpu_nodes,
    "gpu_cluster_info": gpu_cluster_info,
    "reconciler": reconciler,
    "cluster_preflight": cluster_preflight,
    "gpu_explain": gpu_explain,
    "gpu_quota": gpu_quota,
    "gpu_trial": gpu_trial,
    "mig_node": mig_node,
    "stack_images": stack_images,
}
FAST = 200  # times faster than life


def backs_off(pod: dict[str, Any]) -> bool:
    """Whether the kubelet waits before it tries a container of a pod again."""
    status = pod.get("status") or {}
    entries = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return any((entry["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for entry in entries)


class Fleet:
    """A practice cluster, and the modules run against it in this process as Ansible would run them."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice
        self.progress: list[str] = []
        self.namespace = "gpu-operator"

    def run(self, module: str, *, check: bool = False, **params: Any) -> dict[str, Any]:
        """The module's result, or its failure with ``failed`` true; what it returns is compared with its RETURN."""
        options = _options(module)
        unknown = set(params) - set(options)
        assert not unknown, f"{module} has no options {unknown}"
        defaults = {name: option.get("default") for name, option in options.items()}
        given = {"kubeconfig": str(self.practice.cluster.kubeconfig()), "stage_timeout": 90, **params}
        self.progress = []
        try:
            result = MODULES[module]({**defaults, **given}, check, self.progress.append).as_dict()
            answer = dict(result, failed=False)
        except Failure as failure:
            answer = dict(failure.as_dict(), failed=True)
        assert undocumented(module, answer) == []
        return answer

    def stack(self, values: Any = None, *, check: bool = False, **params: Any) -> dict[str, Any]:
        """Run cluster_policy with Helm values."""
        return self.run("cluster_policy", check=check, policy=values, **params)

    def writes(self, since: int) -> list[str]:
        """The admin's API writes behind an offset of the audit log, as sentences."""
        return [str(write) for write in self.practice.writes(since=since)]

    def offset(self) -> int:
        return self.practice.audit_offset()

    def control(self, **faults: Any) -> None:
        """Switch faults of the simulator on, none switches all off; and wait until it has read them."""
        log, control = self.practice.control.parent / "simulator.log", self.practice.control
        read, end = f"{control}: read", time.monotonic() + 20
        before = log.read_text().count(read)
        control.write_text(yaml.safe_dump(faults) if faults else "")
        while log.read_text().count(read) == before:
            assert time.monotonic() < end, f"the simulator has not read {control}: {log.read_text()[-500:]}"
            time.sleep(0.02)

    def reset(self) -> None:
        """Take back faults, pods that the kubelet would try again only minutes later, and node groups."""
        self.control()
        late = [pod["metadata"]["name"] for pod in self.get("Pod") if backs_off(pod)]
        if late:
            self.kubectl("delete", "pod", "-n", self.namespace, *late, "--ignore-not-found", user="admin")
        back = self.run("gpu_nodes", state="absent")
        assert not back["failed"], back["msg"]

    def empty(self) -> None:
        """Remove the stack too."""
        self.reset()
        gone = self.run("reconciler", state="absent")
        assert not gone["failed"], gone["msg"]
        removed = self.run("cluster_policy", state="absent")
        assert not removed["failed"], removed["msg"]

    def own_namespace(self) -> None:
        """Remove the stack, and make its namespace as somebody else would. Who asks for it deletes it again."""
        self.empty()
        self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--timeout=60s", user="admin")
        self.kubectl("create", "namespace", self.namespace, user="admin")

    def get(self, kind: str, name: str = "", namespace: str | None = None) -> Any:
        """An object or list as the observer sees it; None where there is none."""
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._lists import list_objects
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import path

        connection = Connection.open({"kubeconfig": str(self.practice.cluster.kubeconfig("observer"))})
        where = self.namespace if namespace is None else namespace
        if name:
            return connection.find(path(kind, where, name))
        return list_objects(connection, kind, where or None, optional=True).items

    def kubectl(self, *arguments: str, user: str = "observer", text: str | None = None) -> str:
        """What kubectl prints, run as a user of the testbed; raises when it fails."""
        import subprocess

        command = [str(self.practice.cluster.kubectl), "--kubeconfig", str(self.practice.cluster.kubeconfig(user))]
        done = subprocess.run([*command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _options(module: str) -> dict[str, Any]:
    """Options of a module, those of its documentation fragments included."""
    documentation = document(module, "DOCUMENTATION")
    options = dict(documentation["options"])
    for name in documentation["extends_documentation_fragment"]:
        part = name.removeprefix("gpufleet.nvidia.cluster").removeprefix(".") or "documentation"
        options |= yaml.safe_load(getattr(ModuleDocFragment, part.upper()))["options"]
    return options


@pytest.fixture(scope="session")
def _fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Fleet]]:
    running: dict[str, Fleet] = {}
    with contextlib.ExitStack() as all_of_them:

        def fleet(name: str) -> Fleet:
            if name not in running:
                practice = Practice(tmp_path_factory.mktemp(name), fleet=name, speed=FAST)
                running[name] = Fleet(all_of_them.enter_context(practice))
            return running[name]

        yield fleet


@pytest.fixture
def fleets(_fleets: Callable[[str], Fleet]) -> Callable[[str], Fleet]:
    """A fleet by its name, without faults and groups of nodes."""

    def reset(name: str) -> Fleet:
        fleet = _fleets(name)
        fleet.reset()
        return fleet

    return reset


@pytest.fixture
def facts(fleets: Callable[[str], Fleet]) -> Fleet:
    """Two Ubuntu nodes, the first with GPUs that can do MIG."""
    return fleets("facts")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated kubelet gives up an image sooner than a real one."""
    monkeypatch.setattr(_stages, "FINAL_AFTER", 3.0)
