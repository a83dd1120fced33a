# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between a wanted object and a live one, and who owns what differs.

The API server records in ``metadata.managedFields`` which manager set which field (a tree: ``f:`` a field, ``k:`` a
list item by its keys, ``v:`` an item of a set, ``.`` the thing itself). That tree also tells how the server merges
each list, so no schema is needed here. Two facts make the comparison exact without asking the server:

* whoever changes the value of a field takes it over, so a field that we own still has the value that we gave it;
* a field that nobody owns is a default of the server, which is no difference.

Hence a wanted object is *equal* to the live one when every wanted leaf has its value and our server-side-apply entry
owns exactly the wanted fields. Everything here is a pure function.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._quantities import is_zero, same_scalar
from ._resources import MANAGER, Object

Tree = Dict[str, Any]
Path = Tuple[str, ...]


class Absent:
    """A value that is not there, as against null."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


class Difference(NamedTuple):
    """One field that is not as wanted. ``owner`` is the manager that set the live value, "" if nobody or we did.

    ``live`` is ABSENT where the field is missing, ``wanted`` is ABSENT where we set it once and no longer want it,
    and both are the same where only the ownership is missing.
    """

    path: str
    wanted: Any
    live: Any
    owner: str

    def __str__(self) -> str:
        by = f" (set by {self.owner})" if self.owner else ""
        if self.wanted is ABSENT:
            return f"{self.path} is no longer wanted"
        if self.live is ABSENT:
            return f"{self.path} is missing"
        if type(self.wanted) is type(self.live) and self.wanted == self.live:
            return f"{self.path} is right, but not recorded as ours{by}"
        return f"{self.path} is {_short(self.live)}, wanted {_short(self.wanted)}{by}"


class ForeignField(NamedTuple):
    """A field that another manager added to an object that we made."""

    path: str
    owner: str
    value: Any

    def __str__(self) -> str:
        return f"{self.path} was added by {self.owner}"


def normalised(wanted: Mapping[str, Any]) -> Object:
    """The object as it is sent: no nulls, status, or empty labels; ``stringData`` of a Secret turned into ``data``."""
    obj: Object = _cleaned({k: v for k, v in wanted.items() if k != "status"})
    if obj.get("kind") == "Secret" and "stringData" in obj:
        texts = obj.pop("stringData")
        obj["data"] = {
            **obj.get("data", {}),
            **{k: base64.b64encode(str(v).encode()).decode() for k, v in texts.items()},
        }
    return obj


def differences(wanted: Mapping[str, Any], live: Mapping[str, Any], manager: str = MANAGER) -> List[Difference]:
    """Each field in which ``live`` is not what ``manager`` wants, in order of ``wanted``. Empty: nothing to write."""
    comparison = _Comparison(live, manager)
    mine = applied_fields(live, manager)
    wish = normalised(wanted)
    content = {k: v for k, v in wish.items() if k not in ("apiVersion", "kind", "metadata")}
    meta = {k: v for k, v in wish["metadata"].items() if k not in ("name", "namespace")}
    comparison.maps(meta, live["metadata"], _child(mine, "f:metadata"), ("metadata",))
    own = {k: v for k, v in mine.items() if k != "f:metadata"}
    comparison.maps(content, live, own, ())
    return comparison.found


def foreign(wanted: Mapping[str, Any], live: Mapping[str, Any], manager: str = MANAGER) -> List[ForeignField]:
    """Fields of ``live`` that others added and ``wanted`` does not have: spec, data, rules, and metadata.labels.

    Left alone: status, what is written through a subresource, annotations, owners, finalizers, and what controllers
    and kubectl note down for themselves (see ``_IGNORED``).
    """
    found: List[ForeignField] = []
    others = list(_others(live, manager))
    wish = normalised(wanted) if others else {}
    for entry in others:
        tree = _foreign_tree(entry["fieldsV1"], wish, live, str(live.get("kind")), ())
        found += [ForeignField(_shown(path), _owner_name(entry), value) for path, value in _tops(tree, wish, live)]
    return found


def taken_over(wanted: Mapping[str, Any], live: Mapping[str, Any], manager: str = MANAGER) -> List[Dict[str, Any]]:
    """``managedFields`` in which foreign fields of ``live`` belong to ``manager``, so that its next apply removes them.

    Ownership is all that changes, so nothing rolls until that apply, which then is the only change of the object's
    content.
    """
    entries: List[Dict[str, Any]] = []
    moved: Tree = {}
    mine: Optional[Dict[str, Any]] = None
    for entry in live["metadata"].get("managedFields") or []:
        if _is_apply(entry, manager):
            mine = dict(entry)
            entries.append(mine)
        elif entry.get("subresource") or "fieldsV1" not in entry:
            entries.append(entry)
        else:
            tree = _foreign_tree(entry["fieldsV1"], normalised(wanted), live, str(live.get("kind")), ())
            moved = _merged(moved, tree)
            left = _subtracted(entry["fieldsV1"], tree)
            if left:
                entries.append(dict(entry, fieldsV1=left))
    if mine is None:
        mine = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": wanted["apiVersion"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        }
        entries.append(mine)
    mine["fieldsV1"] = _merged(mine["fieldsV1"], moved)
    return entries


def applied(live: Mapping[str, Any], manager: str = MANAGER) -> Object:
    """The part of ``live`` that ``manager`` owns by server-side apply: what it would send to change nothing."""
    out: Object = _extract(applied_fields(live, manager), live) or {}
    out.update({k: live[k] for k in ("apiVersion", "kind") if k in live})
    identity = {k: live["metadata"][k] for k in ("name", "namespace") if k in live["metadata"]}
    out["metadata"] = {**identity, **out.get("metadata", {})}
    return out


def applied_fields(live: Mapping[str, Any], manager: str = MANAGER) -> Tree:
    """The tree of fields that ``manager`` owns by server-side apply, {} if none."""
    for entry in live["metadata"].get("managedFields") or []:
        if _is_apply(entry, manager):
            tree: Tree = entry.get("fieldsV1") or {}
            return tree
    return {}


def managers(live: Mapping[str, Any]) -> List[str]:
    """Who set fields of an object outside its status, each once, for a sentence."""
    return list(
        dict.fromkeys(_owner_name(e) for e in live["metadata"].get("managedFields") or [] if not e.get("subresource"))
    )


# --- comparison -----------------------------------------------------------------------------------------------------


class _Comparison:
    def __init__(self, live: Mapping[str, Any], manager: str) -> None:
        self.found: List[Difference] = []
        self._live = live
        self._manager = manager

    def value(self, wanted: Any, live: Any, own: Optional[Tree], path: Path) -> None:
        if live is ABSENT or live is None:
            # The server leaves out many empty fields but still records who set them (empty lists apart): what is owned
            # has been seen by it.
            if wanted != [] and (own is None or not is_zero(wanted)):
                self._differs(path, wanted, ABSENT)
        elif own is None or _is_leaf(own):
            self._whole(wanted, live, own, path)
        elif isinstance(wanted, dict) and isinstance(live, dict):
            self.maps(wanted, live, own, path)
        elif isinstance(wanted, list) and isinstance(live, list):
            self._lists(wanted, live, own, path)
        else:
            self._differs(path, wanted, live)

    def maps(self, wanted: Mapping[str, Any], live: Mapping[str, Any], own: Optional[Tree], path: Path) -> None:
        for key, value in wanted.items():
            self.value(value, live.get(key, ABSENT), _child(own, "f:" + key), (*path, key))
        for name in own or {}:
            key = name[2:]
            if name.startswith("f:") and key not in wanted and key in live:
                self._differs((*path, key), ABSENT, live[key])

    def _whole(self, wanted: Any, live: Any, own: Optional[Tree], path: Path) -> None:
        """A scalar, a value that is owned as a whole, or one that we do not own at all."""
        if own is not None:
            if not _same_whole(wanted, live, path):
                self._differs(path, wanted, live)
        elif (
            isinstance(wanted, dict)
            and isinstance(live, dict)
            and wanted
            and not _owner(self._live, path, self._manager).whole
        ):
            self.maps(wanted, live, None, path)  # to name the single fields that are missing or not ours
        else:
            self._differs(path, wanted, live)

    def _lists(self, wanted: List[Any], live: List[Any], own: Tree, path: Path) -> None:
        members = {name[2:] for name in own if name.startswith("v:")}
        if members:
            self._set(wanted, live, members, path)
            return
        if not all(isinstance(item, dict) for item in wanted):
            self._differs(path, wanted, live)
            return
        names = _key_names(own)
        items = {_identity(item, names): item for item in live}
        owned = {_identity(_loads(key), names): tree for key, tree in own.items() if key.startswith("k:")}
        wished = [_identity(item, names) for item in wanted]
        for identity, item in zip(wished, wanted):
            here = (*path[:-1], path[-1] + _label(identity))
            self.value(item, items.get(identity, ABSENT), owned.get(identity), here)
        for identity in owned:
            if identity not in wished and identity in items:
                self._differs((*path[:-1], path[-1] + _label(identity)), ABSENT, items[identity])
        order = [identity for identity in items if identity in wished]
        if set(order) == set(wished) and order != wished:
            self._differs((*path, "(order)"), [_label(i) for i in wished], [_label(i) for i in order])

    def _set(self, wanted: List[Any], live: List[Any], members: Any, path: Path) -> None:
        mine = {json.dumps(json.loads(member)) for member in members}
        for item in wanted:
            if item not in live or json.dumps(item) not in mine:
                self._differs((*path, str(item)), item, item if item in live else ABSENT)
        for member in sorted(mine):
            item = json.loads(member)
            if item not in wanted and item in live:
                self._differs((*path, str(item)), ABSENT, item)

    def _differs(self, path: Path, wanted: Any, live: Any) -> None:
        owner = "" if live is ABSENT or wanted is ABSENT else _owner(self._live, path, self._manager).name
        self.found.append(Difference(_shown(path), wanted, live, owner))


# Fields that the server adds inside values that are owned as a whole: (name of the thing around it, field, value).
_DEFAULTS = (
    ("fieldRef", "apiVersion", "v1"),
    ("resourceFieldRef", "divisor", "0"),
    ("serviceAccountToken", "expirationSeconds", 3600),
    ("roleRef", "apiGroup", "rbac.authorization.k8s.io"),
    ("subjects", "apiGroup", "rbac.authorization.k8s.io"),
    ("subjects", "apiGroup", ""),
    ("relabelings", "action", "replace"),
    ("metricRelabelings", "action", "replace"),
    ("tolerations", "operator", "Equal"),
)


# Numbers and booleans that the server leaves out when they are zero; for others (a user id, say) zero means something.
_LEFT_OUT = ("priority", "deprecated", "nullable", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "readOnly")


def _left_out(key: str, value: Any) -> bool:
    """True when the server does not store this value inside one that is owned as a whole."""
    return is_zero(value) and (value is None or isinstance(value, (str, list, dict)) or key in _LEFT_OUT)


def _same_whole(wanted: Any, live: Any, path: Path) -> bool:
    """Equality of a value that is owned as a whole; the server's defaults inside it are no difference."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            if not (_same_whole(value, live[key], (*path, key)) if key in live else _left_out(key, value)):
                return False
        around = path[-1] if path else ""
        return all(key in wanted or is_zero(value) or (around, key, value) in _DEFAULTS for key, value in live.items())
    if isinstance(wanted, list) and isinstance(live, list):
        return len(wanted) == len(live) and all(_same_whole(w, item, path) for w, item in zip(wanted, live))
    return same_scalar(wanted, live, path)


# --- foreign fields -------------------------------------------------------------------------------------------------

# What others may note on our objects: (kind or "", path that is left alone with all below it; * is any one name).
_IGNORED: Tuple[Tuple[str, Path], ...] = (
    ("", ("status",)),
    # An admin's `kubectl rollout restart` is no drift, and removing its mark would restart everything once more.
    ("", ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")),
    ("", ("spec", "template", "metadata", "creationTimestamp")),
    ("Service", ("spec", "clusterIP")),
    ("Service", ("spec", "clusterIPs")),
    ("ServiceAccount", ("secrets",)),  # OpenShift's controllers add pull secrets to every account
    ("ServiceAccount", ("imagePullSecrets",)),
    ("Namespace", ("metadata",)),
    ("Namespace", ("spec",)),
    ("CustomResourceDefinition", ("spec", "conversion")),  # certificate injectors
)


def _left_alone(kind: str, path: Path) -> bool:
    if path[0] == "metadata" and path[1:2] != ("labels",) and len(path) > 1:
        return True
    return any(of in ("", kind) and path[: len(at)] == at for of, at in _IGNORED)


def _foreign_tree(own: Tree, wanted: Any, live: Any, kind: str, path: Path) -> Tree:
    """The part of another manager's tree that is live and not wanted."""
    out: Tree = {}
    for name, below in own.items():
        if name == "." or (not path and name in ("f:apiVersion", "f:kind")):
            continue
        here = (*path, name[2:])
        if name.startswith("f:") and _left_alone(kind, here):
            continue
        there, wish = _at(live, name), _at(wanted, name)
        if there is ABSENT:
            continue
        if wish is ABSENT:
            tree = _kept(below, kind, here)
            if _is_leaf(tree) and not _is_leaf(below):
                continue
        else:
            tree = {} if _is_leaf(below) else _foreign_tree(below, wish, there, kind, here)
        if tree or (wish is ABSENT and _is_leaf(below)):
            out[name] = tree
    return out


def _kept(own: Tree, kind: str, path: Path) -> Tree:
    """A tree that is not wanted, less what is left alone inside it."""
    out: Tree = {}
    for name, below in own.items():
        here = (*path, name[2:])
        if name.startswith("f:") and _left_alone(kind, here):
            continue
        left = _kept(below, kind, here) if name != "." else below
        if _is_leaf(below) or not _is_leaf(left):
            out[name] = left
    return out


def _tops(tree: Tree, wanted: Any, live: Any, path: Path = ()) -> Iterator[Tuple[Path, Any]]:
    """The highest paths of a foreign tree that are not wanted, with their live values."""
    for name, below in tree.items():
        here = (*path, name[2:]) if name.startswith("f:") else (*path[:-1], path[-1] + _label_of(name))
        wish, there = _at(wanted, name), _at(live, name)
        if wish is ABSENT:
            yield here, there
        else:
            yield from _tops(below, wish, there, here)


def _others(live: Mapping[str, Any], manager: str) -> Iterator[Dict[str, Any]]:
    for entry in live["metadata"].get("managedFields") or []:
        if not entry.get("subresource") and "fieldsV1" in entry and not _is_apply(entry, manager):
            yield entry


# --- trees of managedFields -----------------------------------------------------------------------------------------


def _is_apply(entry: Mapping[str, Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _owner_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("manager") or "an unnamed manager")


def _is_leaf(tree: Tree) -> bool:
    return all(name == "." for name in tree)


def _child(tree: Optional[Tree], name: str) -> Optional[Tree]:
    return None if tree is None else tree.get(name)


@lru_cache(maxsize=4096)
def _loads(name: str) -> Any:
    """The keys or the member in a name of a tree; the same few come again and again, and nobody changes them."""
    return json.loads(name[2:])


def _key_names(own: Tree) -> Tuple[str, ...]:
    """The fields that identify an item of a list, as the server's own keys spell them."""
    for name in own:
        if name.startswith("k:"):
            return tuple(sorted(_loads(name)))
    return ()


# Keys that the server fills in before it merges.
_KEY_DEFAULTS = {"protocol": "TCP"}


def _identity(item: Any, names: Sequence[str]) -> Tuple[Any, ...]:
    """What tells an item of a list from the others; hashable, as keys are plain values."""
    if not isinstance(item, dict):
        return (repr(item),)
    return tuple(item.get(name, _KEY_DEFAULTS.get(name)) for name in names)


def _label(identity: Tuple[Any, ...]) -> str:
    return "[" + ",".join(str(part) for part in identity) + "]"


def _label_of(name: str) -> str:
    value = _loads(name)
    return "[" + ",".join(str(value[key]) for key in sorted(value)) + "]" if isinstance(value, dict) else f"[{value}]"


def _at(value: Any, name: str) -> Any:
    """The part of a value that a name of a tree points at, or ABSENT."""
    if name.startswith("f:"):
        return value.get(name[2:], ABSENT) if isinstance(value, dict) else ABSENT
    if not isinstance(value, list):
        return ABSENT
    if name.startswith("k:"):
        keys = _loads(name)
        names = sorted(keys)
        wish = _identity(keys, names)
        return next((item for item in value if isinstance(item, dict) and _identity(item, names) == wish), ABSENT)
    if name.startswith("v:"):
        member = _loads(name)
        return member if member in value else ABSENT
    index = int(name[2:])
    return value[index] if index < len(value) else ABSENT


class _Owner(NamedTuple):
    """Another manager of a field, "" if none; ``whole``: it owns the field, or a thing around it, as one value."""

    name: str
    whole: bool


def _owner(live: Mapping[str, Any], path: Path, manager: str) -> _Owner:
    for entry in _others(live, manager):
        tree: Optional[Tree] = entry["fieldsV1"]
        for part in path:
            if tree is None or _is_leaf(tree):
                break
            tree = _step(tree, part)
        if tree is not None:
            return _Owner(_owner_name(entry), _is_leaf(tree))
    return _Owner("", False)


def _step(tree: Optional[Tree], part: str) -> Optional[Tree]:
    if not tree:
        return None
    if part.endswith("]") and "f:" + part not in tree:
        name, _bracket, label = part.partition("[")
        items = tree.get("f:" + name) or {}
        return next(
            (below for key, below in items.items() if key[:2] in ("k:", "v:") and _label_of(key) == "[" + label), None
        )
    return tree.get("f:" + part)


def _extract(tree: Tree, live: Any) -> Any:
    if _is_leaf(tree):
        return live
    if isinstance(live, dict):
        parts = {name[2:]: (below, _at(live, name)) for name, below in tree.items() if name.startswith("f:")}
        return {key: _extract(below, value) for key, (below, value) in parts.items() if value is not ABSENT}
    if not isinstance(live, list):
        return live
    out = []
    for item in live:
        for name, below in tree.items():
            if name != "." and _at([item], name) is not ABSENT:
                keys = _loads(name) if name.startswith("k:") else None
                rest = _extract(below, item) if not _is_leaf(below) else {}
                out.append({**keys, **rest} if isinstance(keys, dict) else item)
    return out


def _merged(one: Tree, two: Tree) -> Tree:
    out = dict(one)
    for name, below in two.items():
        out[name] = _merged(out[name], below) if name in out else below
    return out


def _subtracted(tree: Tree, less: Tree) -> Tree:
    """``tree`` without what is in ``less``; what becomes empty goes as well."""
    out: Tree = {}
    for name, below in tree.items():
        if name not in less:
            out[name] = below
        elif not _is_leaf(below) and not _is_leaf(less[name]):
            left = _subtracted(below, less[name])
            if not _is_leaf(left):
                out[name] = left
    return out


def _cleaned(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        gone = [
            k for k, v in value.items() if v is None or (key == "metadata" and k in ("labels", "annotations") and not v)
        ]
        return {k: _cleaned(v, k) for k, v in value.items() if k not in gone}
    if isinstance(value, (list, tuple)):
        return [_cleaned(v) for v in value]
    return value


def _shown(path: Path) -> str:
    """A path for people; names with dots in brackets: ``metadata.labels[app.kubernetes.io/name]``."""
    out = ""
    for part in path:
        dotted = "." in part.partition("[")[0] or "/" in part.partition("[")[0]
        out += f"[{part}]" if dotted else ("." + part if out else part)
    return out


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
