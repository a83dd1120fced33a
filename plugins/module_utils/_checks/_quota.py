# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of the module gpu_quota: how many GPUs, slices and MIG devices the pods of a namespace may ask for (S59)."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._kube._apply import DELETE, plan
from .._kube._connection import Connection, Deadline
from .._kube._lists import list_objects
from .._kube._quantities import quantity
from .._kube._resources import MANAGED_BY, MANAGER, PART, Object, Ref, path
from .._kube._watch import until
from .._plan import ERROR, INFO, WARNING, Check, Failure, Finding, Result, errors, refusal
from .._stack._journal import Journal
from .._stack._request import Progress, Request
from ._resources import PREFIX

QUOTA = "quota"  # value of the label of parts
REQUESTS = "requests."
COUNTED_WITHIN = 30.0  # seconds that the quota controller may take to count
_GPU = re.compile(r"gpu(\.shared)?$")
# Profiles of GPU instances, with the number of compute instances, attributes and sharing that a name may carry.
_MIG = re.compile(r"mig-(\d+c\.)?\d+g\.\d+gb(\.(me|gfx|all|shared))*$")


def gpu_quota(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    # What it writes is not what runs of the stack write: those go on meanwhile.
    journal = Journal(Request.from_params(params, check, progress), exclusive=False)
    return _QuotaRun(journal, params).run()


def resource_key(name: str) -> str:
    """The key of a quota for ``gpu``, ``mig-1g.10gb``, ``nvidia.com/gpu`` or ``requests.nvidia.com/gpu``.

    Raises ValueError with what is wrong. Quotas know extended resources by their ``requests.`` keys only.
    """
    plain = name
    if plain.startswith("limits."):
        raise ValueError("quotas know GPUs by requests only: a pod's limit is its request. Leave limits. out")
    plain = plain[len(REQUESTS) :] if plain.startswith(REQUESTS) else plain
    plain = plain[len(PREFIX) :] if plain.startswith(PREFIX) else plain
    if _GPU.match(plain) or _MIG.match(plain):
        return f"{REQUESTS}{PREFIX}{plain}"
    raise ValueError("is no GPU resource: gpu, gpu.shared, or a MIG profile such as mig-1g.10gb are")


def hard_of(given: Mapping[str, Any]) -> Tuple[Dict[str, str], List[Finding]]:
    """``spec.hard`` of the option ``hard``, and what is wrong with it."""
    hard: Dict[str, str] = {}
    found = []
    for name, amount in given.items():
        try:
            key = resource_key(str(name))
            number = quantity(amount)
            if number is None or number < 0 or number.denominator != 1:
                raise ValueError(f"is {amount!r}: whole numbers from 0 on are allowed")
            if key in hard:
                raise ValueError(f"stands for {key}, which is there twice")
            hard[key] = str(int(number))
        except ValueError as error:
            found.append(Finding("quota.hard", ERROR, str(error), path=f"hard.{name}"))
    return hard, found


class _QuotaRun:
    def __init__(self, journal: Journal, params: Mapping[str, Any]) -> None:
        self.journal = journal
        self.request = journal.request
        self.connection: Connection = journal.request.connection
        self.absent = params["state"] == "absent"
        self.which = Ref("ResourceQuota", str(params["namespace"]), str(params["name"]))
        self.hard, problems = hard_of(params.get("hard") or {})
        journal.add_findings(problems)
        if not self.absent and not self.hard and not problems:
            remedy = "Say how many, such as {gpu: 4}, or state: absent."
            journal.add_findings([Finding("quota.hard", ERROR, "is empty", path="hard", remedy=remedy)])

    def run(self) -> Result:
        self._refuse()
        self._need_namespace()
        self._refuse()
        wanted = [] if self.absent else [self._object()]
        made = plan(
            self.connection,
            wanted,
            kinds=["ResourceQuota"],
            scope=f"{PART}={QUOTA}",
            namespace=self.which.namespace,
            deadline=self.request.deadline,
        )
        self.journal.add_findings(made.findings)
        steps = [step for step in made.steps if step.ref == self.which and (self.absent or step.verb != DELETE)]
        self.journal.expect(step.action() for step in steps)
        self._report(None)
        self._refuse()
        if not self.request.check:
            self.journal.run_steps(steps, "quota")
            self.journal.wait_gone(steps)
            self._prove()
        return self.journal.result()

    def _need_namespace(self) -> None:
        name = self.which.namespace
        if not self.absent and self.connection.find(path("Namespace", name=name)) is None:
            finding = Finding("quota.namespace", ERROR, f"{name} does not exist", path="namespace", remedy="Make it.")
            self.journal.add_findings([finding])

    def _object(self) -> Object:
        labels = {MANAGED_BY: MANAGER, PART: QUOTA}
        meta = {"name": self.which.name, "namespace": self.which.namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": self.hard}}

    def _prove(self) -> None:
        """The quota controller's own count: what admission goes by."""
        if self.absent:
            gone = self.connection.find(self.which.path) is None
            self.journal.verified.append(Check(f"quota {self.which.name}", gone, "is gone" if gone else "is there"))
            return
        limit = Deadline(min(COUNTED_WITHIN, self.request.deadline.left))
        live = until(self.connection, self.which, self._counted, limit)
        ok = self._counted(live)
        detail = ", ".join(f"{key[len(REQUESTS) :]}: {amount}" for key, amount in sorted(self.hard.items()))
        text = f"{detail} is enforced" if ok else "the quota controller has not counted it yet"
        self.journal.verified.append(Check(f"quota {self.which.name}", ok, text))
        self._report(live)
        if not ok:
            raise self.journal.failure(f"quota: {self.which} is written, but not counted after {COUNTED_WITHIN:.0f} s")

    def _counted(self, live: Optional[Object]) -> bool:
        status = (live or {}).get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        return all(quantity(hard.get(k)) == quantity(v) and k in used for k, v in self.hard.items())

    def _report(self, live: Optional[Object]) -> None:
        """Who uses how much, and other quotas of the namespace that count GPUs: the smaller number holds."""
        quotas = list_objects(self.connection, "ResourceQuota", self.which.namespace).items
        live = live or next((q for q in quotas if q["metadata"]["name"] == self.which.name), None)
        used = ((live or {}).get("status") or {}).get("used") or {}
        self.journal.found.update(
            name=self.which.name,
            namespace=self.which.namespace,
            hard={} if self.absent else dict(self.hard),
            used={key: str(used.get(key, "0")) for key in self.hard},
        )
        for key, amount in sorted(self.hard.items()) if not self.absent else ():
            number, most = quantity(used.get(key)), quantity(amount)
            if number is not None and most is not None and number > most:
                detail = (
                    f"{used[key]} {key[len(REQUESTS) :]} are used already: pods that run stay, new ones are refused"
                )
                self.journal.add_findings([Finding("quota.exceeded", WARNING, detail, str(self.which), f"hard.{key}")])
        others = [q for q in quotas if q["metadata"]["name"] != self.which.name and self._counts_gpus(q)]
        for other in others if not self.absent else ():
            detail = "counts GPUs of this namespace too: the smaller number holds"
            target = f"ResourceQuota {self.which.namespace}/{other['metadata']['name']}"
            self.journal.add_findings([Finding("quota.other", INFO, detail, target)])

    @staticmethod
    def _counts_gpus(quota: Object) -> bool:
        return any(key.startswith(REQUESTS + PREFIX) for key in (quota.get("spec") or {}).get("hard") or {})

    def _refuse(self) -> None:
        if errors(self.journal.findings):
            raise Failure(refusal(self.journal.findings), self.journal.result(), (), self.journal.remaining)
