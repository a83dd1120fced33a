# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of the module gpu_trial: runs the trials, asks the exporters for metrics, and leaves nothing behind."""

from __future__ import annotations

import secrets
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._kube._connection import ApiError, Connection, Deadline, Dropped, KubeError, MissingPackage
from .._kube._lists import list_objects
from .._kube._resources import Object, Ref, path
from .._kube._watch import until
from .._nodes._stage import node_ready
from .._plan import WARNING, Action, Check, Failure, Finding, Result
from .._stack._facts import read_nodes
from .._stack._request import Progress
from ._explain import explain
from ._explain_read import read_case, read_used
from ._trial import (
    SELECTOR,
    VALIDATOR,
    Program,
    Trial,
    choose,
    ended,
    exporters,
    judge_metrics,
    last_words,
    left_over,
    pod,
)
from ._trial import program_of as program_in

_PAGE = 8 << 20  # bytes of metrics that are read: a board's page has some hundred KiB
_METRICS_SECONDS = 15.0


def gpu_trial(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    seconds = int(params["time_limit"])
    if seconds < 1:
        raise Failure(f"time_limit is {seconds}: seconds from 1 on are allowed. Nothing has been changed.")
    try:
        return _Trials(Connection.open(params), params, check, progress).run()
    except MissingPackage:
        raise
    except KubeError as error:
        raise Failure(f"{error}.") from error


class _Trials:
    def __init__(self, connection: Connection, params: Mapping[str, Any], check: bool, progress: Progress) -> None:
        self.connection, self.check, self.progress = connection, check, progress
        self.namespace = str(params["namespace"])
        self.seconds = int(params["time_limit"])
        self.image = str(params.get("image") or "")
        self.metrics = bool(params["metrics"])
        self.deadline = Deadline(self.seconds)
        self.result = Result()

    def run(self) -> Result:
        nodes = read_nodes(self.connection)
        program = self._program()
        trials, busy = choose(nodes, read_used(self.connection))
        for trial in busy:
            detail = f"no {trial.resource} is free on any ready node with {trial.product}: no pod was run there"
            remedy = "Run it again when one is free, or ask what holds them."
            self.result.findings.append(Finding("trial.busy", WARNING, detail, trial.node, remedy=remedy))
        if not trials and not busy:
            detail = "no ready node offers a GPU resource: nothing was tried"
            self.result.findings.append(Finding("trial.none", WARNING, detail))
        left = self._left_over()
        made = [(f"gpu-trial-{number}-{secrets.token_hex(3)}", trial) for number, trial in enumerate(trials)]
        self.result.plan = [_action("delete", self.namespace, name, "an earlier trial left it") for name in left]
        self.result.plan += [_action("create", self.namespace, name, f"tries {trial.what}") for name, trial in made]
        self.result.found = {"trials": [], "metrics": []}
        if not self.check:
            self._remove(left)
            self._try(made, program)
        if self.metrics:
            self._metrics(nodes, {trial.node for trial in [*trials, *busy]})
        wrong = [one for one in self.result.verified if not one.ok]
        if wrong:
            told = "".join(f"\n  - {one.id}: {one.detail}" for one in wrong)
            raise Failure(f"{len(wrong)} of {len(self.result.verified)} proofs failed:{told}", self.result)
        return self.result

    def _program(self) -> Program:
        found = program_in(self.connection.find(path("DaemonSet", self.namespace, VALIDATOR)))
        if self.image:
            return Program(self.image, runtime_class=found.runtime_class if found else "")
        if found is None:
            text = f"DaemonSet {self.namespace}/{VALIDATOR} is not there, so the image with the CUDA program is not "
            raise Failure(f"{text}known. Bring the stack up, or give an image with sh and vectorAdd. Nothing was run.")
        return found

    def _left_over(self) -> List[str]:
        pods = list_objects(self.connection, "Pod", self.namespace, label_selector=SELECTOR).items
        return [str(item["metadata"]["name"]) for item in pods if left_over(item, self.connection.now())]

    def _try(self, made: Sequence[Tuple[str, Trial]], program: Program) -> None:
        where = path("Pod", self.namespace)
        refused: Dict[str, str] = {}
        try:
            for name, trial in made:
                self.progress(f"trial: {trial.what}")
                body = pod(trial, program, name, self.namespace, self.seconds)
                try:
                    self.connection.request("POST", where, body=body)
                except ApiError as error:
                    refused[name] = f"the pod was refused: {error}"
            for name, trial in made:
                problem = refused.get(name) or self._outcome(name)
                self.progress(f"trial: {trial.what}: {problem or 'passed'}")
                self.result.verified.append(Check(f"CUDA pod with {trial.what}", not problem, problem or "passed"))
                row = {"node": trial.node, "product": trial.product, "resource": trial.resource}
                self.result.found["trials"].append(dict(row, ok=not problem, detail=problem))
        finally:
            self._remove([name for name, _trial in made if name not in refused])

    def _outcome(self, name: str) -> str:
        """ "" when the pod succeeded, else why it did not."""
        which = Ref("Pod", self.namespace, name)
        found = until(self.connection, which, ended, self.deadline)
        if found is None:
            return "somebody deleted the pod before it ended"
        if (found.get("status") or {}).get("phase") == "Succeeded":
            return ""
        said = last_words(found)
        if said:
            return said
        answer = explain(read_case(self.connection, self.namespace, name))
        return " ".join(f"not done after {self.seconds} s: it {answer.text}. {answer.remedy}".split())

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self.connection.request("DELETE", path("Pod", self.namespace, name), query={"gracePeriodSeconds": 0})
            except ApiError as error:
                if error.status != 404:
                    detail = f"the pod of a trial could not be deleted: {error}"
                    remedy = f"kubectl -n {self.namespace} delete pod -l {SELECTOR}"
                    self.result.findings.append(Finding("trial.left", WARNING, detail, name, remedy=remedy))

    def _metrics(self, nodes: Sequence[Object], names: Any) -> None:
        """One exporter for each kind of board, asked through the API server, since its image has no shell."""
        there = exporters(list_objects(self.connection, "Pod", self.namespace).items)
        for node in nodes:
            name = str(node["metadata"]["name"])
            if name in names and name in there and node_ready(node):
                problem = self._page(node, *there[name])
                self.result.verified.append(Check(f"metrics of {name}", not problem, problem or "every GPU has some"))
                self.result.found["metrics"].append({"node": name, "ok": not problem, "detail": problem})

    def _page(self, node: Object, name: str, port: int) -> str:
        where = f"{path('Pod', self.namespace, f'{name}:{port}')}/proxy/metrics"
        try:
            reply = self.connection.stream(where, {}, timeout=_METRICS_SECONDS)
            try:
                text = _some(reply.lines())
            finally:
                reply.close()
        except (KubeError, Dropped) as error:
            return f"the exporter does not answer: {error}"
        return judge_metrics(node, text)


def _some(lines: Any) -> str:
    kept, size = [], 0
    for line in lines:
        size += len(line) + 1
        if size > _PAGE:
            break
        kept.append(line.decode("utf-8", "replace").rstrip("\r\n"))
    return "\n".join(kept)


def _action(verb: str, namespace: str, name: str, reason: str) -> Action:
    target = f"Pod {namespace}/{name}"
    return Action(f"{verb} {target}", verb, target, reason)
