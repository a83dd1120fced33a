# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From wanted objects and a cluster to a plan of steps, and the execution of one step.

Planning reads only: one list by label for each kind, and a look at objects that are about to be created. Objects with
our label are ours: they are brought to exactly what is wanted. An object of a wanted name without it is never touched
but reported.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from .._plan import ERROR, INFO, WARNING, Action, Finding
from ._connection import APPLY, JSON_PATCH, ApiError, Connection, Deadline, KubeError
from ._equal import (
    ABSENT,
    Difference,
    ForeignField,
    applied_fields,
    differences,
    foreign,
    managers,
    normalised,
    taken_over,
)
from ._lists import Listing, list_objects
from ._resources import MANAGED_BY, MANAGER, OURS, Object, Ref, labels, ours, ref, resource
from ._watch import until

CREATE, UPDATE, REPLACE, DELETE = "create", "update", "replace", "delete"
CORRECT, REPORT = "correct", "report"

WORKLOADS = ("DaemonSet", "Deployment", "Job")
AT_ONCE = 4  # requests in flight where several do not need each other
GONE_WITHIN = 300.0  # seconds that a deleted object and what hangs on it may take to go
ESTABLISHED_WITHIN = 60.0

# Fields that can only change by making the object anew: kind -> prefixes of paths.
_IMMUTABLE: Dict[str, Tuple[str, ...]] = {
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template", "spec.completionMode"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "RuntimeClass": ("handler",),
    "PriorityClass": ("value", "preemptionPolicy"),
    "Secret": ("type",),
}


@dataclass(frozen=True)
class Step:
    """One change of one object. ``wanted`` is None for a delete, ``live`` None for a create.

    ``rolls`` says that pods will be replaced; ``disruptive`` that something is taken away before it is there again,
    or for good.
    """

    verb: str
    ref: Ref
    reason: str
    wanted: Optional[Object] = None
    live: Optional[Object] = None
    differences: Tuple[Difference, ...] = ()
    foreign: Tuple[ForeignField, ...] = ()
    disruptive: bool = False
    rolls: bool = False

    @property
    def id(self) -> str:
        """Unique in a plan, and the same in the next run."""
        return f"{self.verb} {self.ref}"

    def action(self) -> Action:
        """The step for a module's result: what differs, by path; the whole object where one is made or removed."""
        before: Any = None
        after: Any = None
        if self.verb == CREATE:
            after = self.wanted
        elif self.verb == DELETE:
            before = _without_noise(self.live or {})
        else:
            before = {d.path: d.live for d in self.differences if d.live is not ABSENT}
            before.update({f.path: f.value for f in self.foreign})
            after = {d.path: d.wanted for d in self.differences if d.wanted is not ABSENT}
            if self.ref.kind == "Secret":
                before, after = dict.fromkeys(before, "(redacted)"), dict.fromkeys(after, "(redacted)")
        return Action(self.id, self.verb, str(self.ref), self.reason, self.disruptive, before, after)


@dataclass
class Plan:
    """Steps in the order of their execution, findings, and every object of ours that was found, by identity."""

    steps: List[Step] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    live: Dict[Ref, Object] = field(default_factory=dict)

    @property
    def actions(self) -> List[Action]:
        """The steps as a module returns them."""
        return [step.action() for step in self.steps]


def plan(
    connection: Connection,
    wanted: Sequence[Mapping[str, Any]],
    *,
    kinds: Iterable[str] = (),
    optional: Iterable[str] = (),
    scope: str = "",
    namespace: Optional[str] = None,
    drift: str = CORRECT,
    deadline: Optional[Deadline] = None,
    listings: Optional[Mapping[str, Listing]] = None,
) -> Plan:
    """What has to be done so that the cluster has exactly ``wanted`` among the objects of ours in ``scope``.

    ``wanted`` keeps its order; every object carries our label. ``kinds`` are further kinds in which objects that are
    no longer wanted are looked for (removed in the reverse of the order in which ``kinds`` and ``wanted`` name their
    kinds). ``optional``: kinds that the cluster need not know (CRDs); their objects are left out with a finding.
    ``scope`` is a further label selector (``gpufleet.io/part=device-plugin``). ``namespace`` limits the lists of
    namespaced kinds for accounts that may not list them in all. ``drift``: ``correct`` removes fields that others
    added, ``report`` only reports them. ``listings``: lists of ``owned`` that were read just now, by kind; those kinds
    are not listed again.
    """
    planner = _Planner(connection, wanted, kinds, optional, scope, namespace, drift, deadline)
    planner.listings = listings or {}
    return planner.plan()


def owned(
    connection: Connection,
    kind: str,
    namespace: Optional[str] = None,
    deadline: Optional[Deadline] = None,
    scope: str = "",
) -> Listing:
    """All objects of a kind that carry our label; not served where the cluster does not know the kind."""
    selector = ",".join(part for part in (OURS, scope) if part)
    return list_objects(connection, kind, namespace, label_selector=selector, optional=True, deadline=deadline)


class _Planner:
    def __init__(
        self,
        connection: Connection,
        wanted: Sequence[Mapping[str, Any]],
        kinds: Iterable[str],
        optional: Iterable[str],
        scope: str,
        namespace: Optional[str],
        drift: str,
        deadline: Optional[Deadline],
    ) -> None:
        self.connection = connection
        self.wanted = {ref(obj): normalised(obj) for obj in wanted}
        self.kinds = list(dict.fromkeys([*kinds, *(r.kind for r in self.wanted)]))
        self.optional = set(optional)
        self.selector = ",".join(part for part in (OURS, scope) if part)
        self.scope = scope
        self.namespace = namespace
        self.drift = drift
        self.deadline = deadline
        self.listings: Mapping[str, Listing] = {}
        self.out = Plan()
        self.unserved: Set[str] = set()
        self.looked_up: Dict[Ref, Optional[Object]] = {}
        for obj in wanted:
            _check(obj)

    def plan(self) -> Plan:
        for kind in self.kinds:
            self._list(kind)
        absent = self._absent_namespaces()
        self._look_up(which for which in self.wanted if which not in self.out.live and which.namespace not in absent)
        for which, obj in self.wanted.items():
            if which.kind in self.unserved and which.kind not in self._own_kinds():
                self._unserved(which)
                continue
            live = self.out.live.get(which)
            if live is None and which.namespace not in absent and which.kind not in self.unserved:
                live = self._by_name(which)
                if live is not None and not self._is_ours(live):
                    self._taken(which, obj, live)
                    continue
            self._step(which, obj, live)
        self._prune()
        return self.out

    def _list(self, kind: str) -> None:
        tolerated = kind in self.optional or kind in self._own_kinds() or not any(r.kind == kind for r in self.wanted)
        listing = self.listings.get(kind) or list_objects(
            self.connection, kind, self.namespace, label_selector=self.selector, optional=True, deadline=self.deadline
        )
        if not listing.served:
            self.unserved.add(kind)
            if not tolerated:
                self._finding(
                    "kind-missing",
                    kind,
                    f"the cluster does not know the kind {kind} ({resource(kind).api_version})",
                    "Install its CRD.",
                )
        for obj in listing.items:
            self.out.live[ref(obj)] = obj

    def _own_kinds(self) -> Set[str]:
        """Kinds whose CRD is among the wanted objects."""
        crds = (obj for r, obj in self.wanted.items() if r.kind == "CustomResourceDefinition")
        return {str(obj["spec"]["names"]["kind"]) for obj in crds}

    def _absent_namespaces(self) -> Set[str]:
        """Wanted namespaces that are not there yet: nothing needs to be looked for in them."""
        names = {r.name for r in self.wanted if r.kind == "Namespace" and r not in self.out.live}
        return {name for name in names if self._by_name(Ref("Namespace", "", name)) is None}

    def _look_up(self, refs: Iterable[Ref]) -> None:
        """Get objects that will be asked for by name, several at once."""
        asked = [which for which in refs if which not in self.looked_up and which.kind not in self.unserved]
        if len(asked) < 2:
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.looked_up.update(zip(asked, pool.map(self._by_name, asked)))

    def _by_name(self, which: Ref) -> Optional[Object]:
        if which not in self.looked_up:
            self.looked_up[which] = self.connection.find(which.path, deadline=self.deadline)
        return self.looked_up[which]

    def _is_ours(self, live: Object) -> bool:
        return ours(live) and _in_scope(labels(live), self.scope)

    def _unserved(self, which: Ref) -> None:
        if which.kind in self.optional:
            api = resource(which.kind).api_version
            detail = f"left out: the cluster does not know the kind {which.kind} ({api})"
            self.out.findings.append(Finding("kind-missing", INFO, detail, str(which)))

    def _taken(self, which: Ref, obj: Object, live: Object) -> None:
        """An object of the wanted name that is not ours."""
        if which.kind == "Namespace":
            self._shared_namespace(which, obj, live)
            return
        who = ", ".join(managers(live)) or "an unknown manager"
        if ours(live):
            detail = f"exists, and belongs to another part of this collection ({_part(live, self.scope)})"
            remedy = "Let only one of the two manage it."
        else:
            fields = [d.path for d in differences(obj, live, MANAGER) if d.live is not ABSENT and d.wanted != d.live]
            differs = (
                f"; it differs in {', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}" if fields else ""
            )
            detail = f"exists, and was not made by this collection but by {who}{differs}"
            remedy = f"Remove it, or label it {MANAGED_BY}={MANAGER} to hand it over."
        self._finding("foreign-object", str(which), detail, remedy)

    def _shared_namespace(self, which: Ref, obj: Object, live: Object) -> None:
        """A namespace that others made stays theirs; only labels that it lacks are added, and recorded as ours."""
        mine = {key: value for key, value in labels(obj).items() if key != MANAGED_BY and _in_scope({key: value}, "")}
        mine = {key: value for key, value in mine.items() if f"{key}={value}" not in self.scope.split(",")}
        annotations = obj["metadata"].get("annotations")
        meta: Dict[str, Any] = {"name": which.name, **({"labels": mine} if mine else {})}
        if annotations:
            meta["annotations"] = annotations
        part = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        found = differences(part, live, MANAGER)
        clashes = [d for d in found if d.live is not ABSENT and d.wanted is not ABSENT and d.live != d.wanted]
        for clash in clashes:
            self._finding(
                "foreign-field",
                str(which),
                str(clash),
                "The namespace was not made by this collection: change the value there, or use another.",
            )
        found = [d for d in found if d.live is ABSENT or d.wanted is ABSENT]
        if found and not clashes:
            self.out.steps.append(Step(UPDATE, which, _reason(which.kind, found, ()), part, live, tuple(found)))

    def _finding(
        self, name: str, target: str, detail: str, remedy: str, severity: str = ERROR, where: str = ""
    ) -> None:
        self.out.findings.append(Finding(name, severity, detail, target, where, remedy))

    def _step(self, which: Ref, obj: Object, live: Optional[Object]) -> None:
        if live is None:
            self.out.steps.append(Step(CREATE, which, "does not exist", obj))
            return
        self.out.live[which] = live
        if live["metadata"].get("deletionTimestamp"):
            self.out.steps.append(Step(REPLACE, which, "is being deleted", obj, live, disruptive=True))
            return
        found = differences(obj, live)
        extra = foreign(obj, live)
        if extra and self.drift == REPORT:
            for item in extra:
                remedy = "Remove it, or set `drift: correct`."
                self._finding("foreign-field", str(which), f"{item}", remedy, WARNING, item.path)
            extra = []
        if not found and not extra:
            return
        immutable = _immutable(which.kind, found, obj, live)
        if immutable and which.kind == "CustomResourceDefinition":
            detail = f"{immutable} cannot be changed without deleting every object of the kind"
            self._finding("immutable-field", str(which), detail, "Remove the CRD by hand if its objects may go.")
            return
        reason = _reason(which.kind, found, extra)
        if immutable:
            reason = f"{reason}; {immutable} cannot be changed in place, so it is deleted and made anew"
        verb = REPLACE if immutable else UPDATE
        paths = [d.path for d in found] + [f.path for f in extra]
        rolls = which.kind in WORKLOADS and (bool(immutable) or any(p.startswith("spec.template") for p in paths))
        self.out.steps.append(Step(verb, which, reason, obj, live, tuple(found), tuple(extra), bool(immutable), rolls))

    def _prune(self) -> None:
        rank = {kind: n for n, kind in enumerate(self.kinds)}
        rest = [r for r in self.out.live if r not in self.wanted]
        for which in sorted(rest, key=lambda r: (-rank[r.kind], r)):
            live = self.out.live[which]
            if not live["metadata"].get("deletionTimestamp"):
                disruptive = which.kind in (*WORKLOADS, "Namespace", "CustomResourceDefinition")
                self.out.steps.append(Step(DELETE, which, "is no longer wanted", None, live, disruptive=disruptive))


# --- execution ------------------------------------------------------------------------------------------------------


def execute(connection: Connection, step: Step, deadline: Optional[Deadline] = None) -> List[Finding]:
    """Carry out one step; findings say what the server did not keep as wanted.

    Raises ``ApiError``, ``Unreachable``, or ``KubeError`` where an object does not go or its owner changed meanwhile.
    Doing a step again that was done already changes nothing.
    """
    if step.verb == DELETE:
        delete(connection, step.ref, step.live, deadline)
        return []
    wanted = step.wanted
    if wanted is None:
        raise ValueError(f"{step.id}: nothing is wanted")
    if step.verb == REPLACE:
        delete(connection, step.ref, step.live, deadline)
        wait_gone(connection, step.ref, _uid(step.live), deadline)
    if step.foreign and step.live is not None:
        _take_over(connection, step, deadline)
    result = apply(connection, wanted, deadline)
    if step.ref.kind == "CustomResourceDefinition":
        wait_established(connection, step.ref, deadline)
    # A webhook or an unknown default that changes what was sent would be written again in every run: say so at once.
    return [
        Finding(
            "not-kept",
            WARNING,
            f"the cluster does not keep what was applied: {_told(step.ref.kind, d)}",
            str(step.ref),
            d.path,
            "Look for a mutating webhook.",
        )
        for d in differences(wanted, result)
    ]


def apply(
    connection: Connection, wanted: Mapping[str, Any], deadline: Optional[Deadline] = None, dry_run: bool = False
) -> Object:
    """Server-side apply as our manager; what the server stored, or would store."""
    query = {"fieldManager": MANAGER, "force": "true"}
    if dry_run:
        query["dryRun"] = "All"
    # A CRD that was just established may not be served yet by this API server.
    patience = Deadline(min(15.0, deadline.left if deadline else 15.0))
    tries = 0
    while True:
        try:
            return connection.request(
                "PATCH", ref(wanted).path, query=query, body=wanted, content_type=APPLY, deadline=deadline
            ).body
        except ApiError as error:
            tries += 1
            # Forced, it conflicts with nobody's fields: somebody wrote the object in the same moment.
            passing = error.unknown_kind or error.status == 409
            if dry_run or not passing or patience.passed:
                raise
            connection.pause(tries, patience)


def release(connection: Connection, which: Ref, deadline: Optional[Deadline] = None) -> bool:
    """Give back an object that others made: fields that only we set go, the rest stays. True if that changed it."""
    live = connection.find(which.path, deadline=deadline)
    if live is None or not applied_fields(live):
        return False
    bare: Object = {
        "apiVersion": resource(which.kind).api_version,
        "kind": which.kind,
        "metadata": {"name": which.name},
    }
    if which.namespace:
        bare["metadata"]["namespace"] = which.namespace
    apply(connection, bare, deadline)
    return True


def _take_over(connection: Connection, step: Step, deadline: Optional[Deadline]) -> None:
    """Make foreign fields ours, so that the apply that follows removes them. Only ownership changes here."""
    live: Optional[Object] = step.live
    for tries in range(1, 6):
        if live is None or not ours(live):
            raise KubeError(f"{step.ref} is no longer ours: its label {MANAGED_BY} was removed meanwhile; run again")
        if not foreign(step.wanted or {}, live):
            return
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": taken_over(step.wanted or {}, live)},
        ]
        try:
            # Safe to send twice: the second time the resource version no longer fits.
            connection.request(
                "PATCH",
                step.ref.path,
                query={"fieldManager": MANAGER},
                body=patch,
                content_type=JSON_PATCH,
                deadline=deadline,
                idempotent=True,
            )
            return
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            connection.pause(tries, deadline)
        live = connection.find(step.ref.path, deadline=deadline)
    raise KubeError(f"{step.ref} is changed by others all the time; its foreign fields could not be removed")


def delete(connection: Connection, which: Ref, live: Optional[Object], deadline: Optional[Deadline] = None) -> None:
    """Delete an object that is still the one that was planned, and still ours; what hangs on it goes first.

    Raises ``KubeError`` when it lost our label meanwhile. Gone already is fine. Does not wait: see ``wait_gone``.
    """
    uid = _uid(live)
    for tries in range(1, 8):
        if live is None or _uid(live) != uid or live["metadata"].get("deletionTimestamp"):
            return
        if not ours(live):
            raise KubeError(f"{which} is not deleted: it no longer carries the label {MANAGED_BY}={MANAGER}")
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground" if which.kind in WORKLOADS else "Background",
            "preconditions": {"uid": uid, "resourceVersion": live["metadata"]["resourceVersion"]},
        }
        try:
            connection.request("DELETE", which.path, body=body, deadline=deadline)
            return
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 409:
                raise
            connection.pause(tries, deadline)
        live = connection.find(which.path, deadline=deadline)
    raise KubeError(f"{which} is changed by others all the time and could not be deleted")


def wait_gone(connection: Connection, which: Ref, uid: str, deadline: Optional[Deadline] = None) -> None:
    """Wait until the object with this ``uid`` is gone. Raises ``KubeError`` with what holds it."""
    limit = Deadline(min(GONE_WITHIN, deadline.left) if deadline else GONE_WITHIN)
    last = until(connection, which, lambda live: live is None or _uid(live) != uid, limit)
    if last is not None and _uid(last) == uid:
        held = last["metadata"].get("finalizers") or []
        by = f"held by the finalizer {', '.join(held)}" if held else "nothing says what holds it"
        raise KubeError(f"{which} was deleted, but is not gone after {limit.seconds:.0f} s: {by}")


def wait_established(connection: Connection, which: Ref, deadline: Optional[Deadline] = None) -> None:
    """Wait until the API server serves the kinds of a CRD."""
    limit = Deadline(min(ESTABLISHED_WITHIN, deadline.left) if deadline else ESTABLISHED_WITHIN)

    def served(live: Optional[Object]) -> bool:
        conditions = ((live or {}).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    if not served(until(connection, which, served, limit)):
        raise KubeError(f"{which} is not established after {limit.seconds:.0f} s: see its status.conditions")


# --- check mode -----------------------------------------------------------------------------------------------------


def rehearse(connection: Connection, made: Plan, deadline: Optional[Deadline] = None) -> List[Finding]:
    """Dry runs of the plan's creates and updates, so that refusals by admission show before anything is written.

    Sends nothing when there is nothing to do, and stops at once where the account may not patch. What cannot be tried
    yet (a namespace or CRD of the same plan) is passed over.
    """
    found: List[Finding] = []
    new = {step.ref.name for step in made.steps if step.verb == CREATE and step.ref.kind == "Namespace"}
    for step in made.steps:
        if step.wanted is None or step.verb == REPLACE or step.ref.namespace in new:
            continue
        try:
            apply(connection, step.wanted, deadline, dry_run=True)
        except ApiError as error:
            if error.forbidden_by_rights:
                break
            if error.status in (400, 403, 409, 422) or (error.status >= 500 and "webhook" in error.message):
                detail = f"the cluster refuses it: {error.message}"
                found.append(Finding("refused", ERROR, detail, str(step.ref), remedy=_remedy(error)))
            elif not (error.unknown_kind or error.status == 404):
                raise
    return found


# --- helpers --------------------------------------------------------------------------------------------------------


def _check(obj: Mapping[str, Any]) -> None:
    which = ref(obj)
    if obj.get("apiVersion") != resource(which.kind).api_version:
        raise ValueError(f"{which}: apiVersion is {obj.get('apiVersion')!r}, not {resource(which.kind).api_version!r}")
    if resource(which.kind).namespaced and not which.namespace:
        raise ValueError(f"{which}: no namespace")
    if not ours(obj):
        raise ValueError(f"{which}: the label {MANAGED_BY}={MANAGER} is missing")


def _in_scope(found: Mapping[str, str], scope: str) -> bool:
    """True when labels match a selector of the form ``a=b,!c``."""
    parts = [part for part in scope.split(",") if part]
    absent = [part[1:] for part in parts if part.startswith("!")]
    pairs = (part.partition("=") for part in parts if not part.startswith("!"))
    return not any(key in found for key in absent) and all(found.get(key) == value for key, _equals, value in pairs)


def _part(live: Mapping[str, Any], scope: str) -> str:
    keys = [part.lstrip("!").partition("=")[0] for part in scope.split(",") if part]
    return ", ".join(f"{key}={labels(live).get(key, '(none)')}" for key in keys)


def _uid(live: Optional[Mapping[str, Any]]) -> str:
    return str(live["metadata"].get("uid") or "") if live else ""


def _immutable(kind: str, found: Sequence[Difference], wanted: Object, live: Object) -> str:
    """The first path that cannot be changed in place, or ""."""
    for item in found:
        if item.wanted == item.live:
            continue  # only the ownership differs
        for prefix in _IMMUTABLE.get(kind, ()):
            if re.match(re.escape(prefix) + r"($|[.\[])", item.path):
                return prefix
        if kind == "Service" and item.path == "spec.clusterIP":
            return item.path
        if kind == "CustomResourceDefinition" and item.path in (
            "spec.scope",
            "spec.group",
            "spec.names.kind",
            "spec.names.plural",
        ):
            return item.path
        if kind in ("ConfigMap", "Secret") and live.get("immutable") and not item.path.startswith("metadata"):
            return item.path
    return ""


def _reason(kind: str, found: Sequence[Difference], extra: Sequence[ForeignField]) -> str:
    texts = [_told(kind, item) for item in found] + [_told(kind, item) for item in extra]
    more = f" (and {len(texts) - 2} more)" if len(texts) > 2 else ""
    return "; ".join(texts[:2]) + more


def _told(kind: str, item: Union[Difference, ForeignField]) -> str:
    """A difference in words; of a Secret only where it is."""
    return f"{item.path} is not as wanted" if kind == "Secret" else str(item)


def _remedy(error: ApiError) -> str:
    if "exceeded quota" in error.message:
        return "Raise the ResourceQuota of the namespace."
    if "webhook" in error.message:
        return "Ask who owns the webhook, or exempt the namespace."
    return ""


def _without_noise(live: Mapping[str, Any]) -> Object:
    meta = (
        {k: v for k, v in live["metadata"].items() if k in ("name", "namespace", "labels", "annotations")}
        if live
        else {}
    )
    return {**{k: v for k, v in live.items() if k not in ("status", "metadata")}, "metadata": meta}
