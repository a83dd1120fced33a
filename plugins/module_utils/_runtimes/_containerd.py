# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of containerd: how its files are merged, and the smallest change that gives it a runtime.

Before 2.1 an imported file that names a plugin replaces all that was said of it, so a drop-in repeats the CRI plugin's
table; from 2.1 on tables are merged, and a drop-in has the runtime alone. Runtimes that files define replace the
built-in ones, so the default runtime is repeated where no file has it. Seen with 1.6.20, 1.7.24 and 2.4.2.
"""

from __future__ import annotations

import copy
import fnmatch
import posixpath
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._plan import ERROR, INFO, Finding
from ._toml import Toml, TomlError, dumps
from ._types import HEADER, Broken, Proposal, Reader, Version, Wanted, at, demand, meant, overlaid, table

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
RUNC = "io.containerd.runc.v2"
_MERGES = (2, 1)  # tables of imported files are merged from here on
_CDI_KNOWN = (1, 7)
_CDI_ON = (2, 0)  # CDI is on by itself from here on
_MOST_FILES = 100
# Names of the plugin that has the runtimes, by version of the file.
_PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri"}
_PLUGIN = "io.containerd.cri.v1.runtime"
_CRI = ("cri", "io.containerd.grpc.v1.cri", _PLUGIN)


@dataclass(frozen=True)
class Places:
    """Which files a daemon reads. ``drop_in`` empty: the runtime is written into ``config`` itself."""

    config: str = CONFIG
    drop_in: str = DROP_IN
    title: str = "containerd"
    imported: Tuple[str, ...] = ()  # patterns that the daemon imports by itself (k0s)


@dataclass
class Document:
    """A file that the daemon reads."""

    path: str
    text: str
    toml: Toml
    version: int

    @property
    def plugin(self) -> str:
        """Name of the plugin that has the runtimes."""
        return _PLUGINS.get(self.version, _PLUGIN)

    def cri(self) -> Optional[Dict[str, Any]]:
        """The plugin's table; None where the file does not name it."""
        found = at(self.toml.data, "plugins", self.plugin)
        return found if isinstance(found, dict) else None

    def imports(self) -> List[str]:
        """Patterns as absolute paths."""
        given = self.toml.data.get("imports")
        folder = posixpath.dirname(self.path)
        listed = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
        return [posixpath.normpath(posixpath.join(folder, one)) for one in listed]


@dataclass
class Effective:
    """What the daemon makes of its files, as far as runtimes go."""

    cri: Dict[str, Any] = field(default_factory=dict)

    @property
    def runtimes(self) -> Dict[str, Any]:
        return table(at(self.cri, "containerd", "runtimes"))

    @property
    def default(self) -> str:
        return str(at(self.cri, "containerd", "default_runtime_name") or "")

    def cdi(self) -> Optional[bool]:
        """What files say of CDI."""
        return next(
            (one for one in (self.cri.get("enable_cdi"), at(self.cri, "containerd", "enable_cdi")) if one), None
        )


def load(reader: Reader, places: Places) -> List[Document]:
    """The files that the daemon reads, in the order in which it merges them. Raises Broken."""
    documents: List[Document] = []
    todo = [places.config]
    seen = set()
    while todo:
        path = todo.pop(0)
        text = None if path in seen else reader.text(path)
        seen.add(path)
        if text is None:
            continue
        if len(documents) == _MOST_FILES:
            raise Broken(f"{places.config} imports more than {_MOST_FILES} files; none is changed. Mend its imports.")
        documents.append(_document(path, text, documents[0].version if documents else 0))
        patterns = documents[-1].imports() + (list(places.imported) if path == places.config else [])
        todo += [found for pattern in patterns for found in reader.glob(pattern)]
    return documents


def _document(path: str, text: str, imported_by: int) -> Document:
    try:
        toml = Toml(text)
    except TomlError as error:
        raise Broken(f"{path}: {error}. containerd cannot read it either; it is left alone. Mend it.") from None
    version = toml.data.get("version")
    if version is None:
        version = imported_by or (1 if toml.data else 2)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise Broken(f"{path}: version is {version!r}; allowed are whole numbers such as 2 or 3. It is left alone.")
    found = Document(path, text, toml, version)
    runtimes = ("plugins", found.plugin, "containerd", "runtimes")
    demand(
        path, toml.data, (("imports",), list), (("disabled_plugins",), list), (("plugins",), dict),
        (runtimes[:2], dict), (runtimes[:3], dict), (runtimes, dict), ((*runtimes, "*"), dict),
        ((*runtimes, "*", "options"), dict), ((*runtimes[:3], "default_runtime_name"), str),
    )  # fmt: skip
    return found


def effective(documents: Sequence[Document], daemon: Version) -> Effective:
    """The merged table of the plugin that has the runtimes."""
    merged: Dict[str, Any] = {}
    for document in documents:
        own = document.cri()
        if own is not None:
            merged = overlaid(merged, own, join_lists=True) if _merges(daemon) else own
    return Effective(merged)


def without_cri(documents: Sequence[Document]) -> bool:
    """Whether the CRI plugin is switched off, as it is where Docker alone uses containerd."""
    listed = [document.toml.data.get("disabled_plugins") for document in documents]
    return any(name in _CRI for names in listed if isinstance(names, list) for name in names)


def plan(
    reader: Reader, places: Places, wanted: Wanted, daemon: Version, built_in: Mapping[str, Any], earlier: str = ""
) -> Proposal:
    """What gives the daemon the runtime.

    ``built_in``: runtimes that the daemon has now by its own ``config dump`` (empty where it cannot be asked);
    ``earlier``: the default runtime to go back to where ``wanted.default`` is false. Raises Broken.
    """
    return Planner(reader, places, wanted, daemon, built_in, earlier).proposal()


class Planner:
    """Plans one daemon's files."""

    def __init__(
        self, reader: Reader, places: Places, wanted: Wanted, daemon: Version, built_in: Mapping[str, Any], earlier: str
    ) -> None:
        self._reader, self._places, self._wanted, self._daemon = reader, places, wanted, daemon
        self._built_in, self._earlier = built_in, earlier or "runc"
        self.all = load(reader, places)
        top = self.all[0] if self.all and self.all[0].path == places.config else None
        # A file without content says nothing of its format.
        self._top = top if top and top.toml.data else None
        self._text = top.text if top else None
        self.version = self._top.version if self._top else (3 if daemon and daemon >= (2, 0) else 2)

    def proposal(self) -> Proposal:
        proposal = Proposal()
        if without_cri(self.all):
            proposal.findings.append(
                Finding(
                    "containerd_without_cri", INFO, "its CRI plugin is switched off (disabled_plugins), so it runs "
                    "containers of Docker only and needs no runtime", self._places.title, self._places.config,
                    "Take cri out of disabled_plugins if Kubernetes shall use it",
                )
            )  # fmt: skip
            return proposal
        if self._wanted.cdi and self._daemon and self._daemon < _CDI_KNOWN:
            detail = f"containerd {self._daemon[0]}.{self._daemon[1]} knows no CDI"
            remedy = "Use containerd 1.7 or newer, or leave cdi out"
            proposal.findings.append(
                Finding("containerd_without_cdi", ERROR, detail, self._places.title, "cdi", remedy)
            )
        in_place = self.version == 1 or not self._places.drop_in
        if self._daemon and self._daemon < (2, 0) and self.version > 2:
            raise Broken(
                f"{self._places.config}: version is {self.version}, and containerd {self._daemon[0]}.{self._daemon[1]} "
                f"knows 2 at most, so it does not start with this file. It is left alone."
            )
        now = effective(self.all, self._daemon)
        if self._wanted.default is True and now.default != self._wanted.name:
            proposal.earlier = now.default
        if in_place:
            self._in_place(proposal, now)
        else:
            self._drop_in(proposal, now)
        return proposal

    # --- What the runtime's table has to say ----------------------------------------------------------------------

    def _entry(self, others: Effective) -> Dict[str, Any]:
        source, own = self._source(others), table(others.runtimes.get(self._wanted.name))
        entry = overlaid(copy.deepcopy(source), copy.deepcopy(own))
        if not entry.get("runtime_type"):
            entry["runtime_type"] = RUNC
        options = dict(table(entry.get("options")), BinaryName=self._wanted.program)
        if not source and not own and self._wanted.systemd_cgroup:
            options.setdefault("SystemdCgroup", True)
        if self.version == 1 and "Runtime" in options:
            options["Runtime"] = self._wanted.program
        entry["options"] = options
        return entry

    def _source(self, others: Effective) -> Dict[str, Any]:
        """The daemon's own runtime of which ours is a copy: the default one, runc, or crun; the first that is there."""
        default = others.default
        names = [default] if default and not default.startswith("nvidia") and default != self._wanted.name else []
        for name in (*names, "runc", "crun"):
            if isinstance(others.runtimes.get(name), dict) and _runs_runc(others.runtimes[name], name):
                return table(others.runtimes[name])
        for name in (*names, "runc", "crun"):
            found: Dict[str, Any] = meant(table(self._built_in.get(name)))
            if found and not self._wanted.systemd_cgroup:
                return found
        return {} if self._has_default(others) else self._plain()

    def _plain(self) -> Dict[str, Any]:
        """runc where nothing tells how it was."""
        options = {"options": {"SystemdCgroup": True}} if self._wanted.systemd_cgroup else {}
        return {"runtime_type": RUNC, **options}

    def _settings(self, others: Effective, now: Effective) -> Dict[str, Any]:
        """All that has to hold below the table ``containerd`` of the plugin, besides runtimes."""
        settings: Dict[str, Any] = {}
        if self._wanted.default is True:
            settings["default_runtime_name"] = self._wanted.name
        elif self._wanted.default is False and others.default == self._wanted.name:
            settings["default_runtime_name"] = self._earlier
        elif self._wanted.default is None and now.default != others.default and now.default:
            # Set by the drop-in that is there; where it names one that goes with it, ours takes its place.
            known = now.default in below_or(others, self._built_in)
            settings["default_runtime_name"] = now.default if known else self._wanted.name
        return settings

    def _cdi(self) -> bool:
        return self._wanted.cdi and not (self._daemon and self._daemon >= _CDI_ON)

    def _is_right(self, now: Effective, entry: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
        return (
            meant(now.runtimes.get(self._wanted.name)) == meant(entry)
            and all(at(now.cri, "containerd", key) == value for key, value in settings.items())
            and (not self._cdi() or now.cdi() is True)
            and not (self._wanted.default is False and now.default == self._wanted.name)
            and self._has_default(now)
        )

    def _has_default(self, now: Effective) -> bool:
        """Whether the default runtime is there: files that define another one alone take the built-in runc away, and
        the CRI plugin does not start then."""
        return _merges(self._daemon) or not now.runtimes or (now.default or "runc") in now.runtimes

    # --- Where it lands -------------------------------------------------------------------------------------------

    def _drop_in(self, proposal: Proposal, now: Effective) -> None:
        mine = self._places.drop_in
        for path in (
            mine,
            posixpath.join(posixpath.dirname(mine), "zz-" + posixpath.basename(mine).lstrip("0123456789-")),
        ):
            others = [one for one in self.all if not one.text.startswith(HEADER)]
            below = effective(others, self._daemon)
            entry, settings = self._entry(below), self._settings(below, now)
            moved = any(one.text.startswith(HEADER) and one.path not in (mine, path) for one in self.all)
            if self._is_right(now, entry, settings) and not self._is_stale(mine, below) and not moved:
                return
            changes = self._changes(path, below, entry, settings)
            after = effective(load(Changed(self._reader, changes), self._places), self._daemon)
            if self._is_right(after, entry, settings):
                for target, text in changes.items():
                    reason = "gives the runtime" if target == path else "has the daemon read the drop-in"
                    proposal.change(target, self._reader.text(target), text, reason)
                return
        proposal.findings.append(
            Finding(
                "runtime_overridden", ERROR, f"another file that is imported later says otherwise of the runtime "
                f"{self._wanted.name}: {', '.join(document.path for document in self.all)}", self._places.title,
                remedy="Take the runtime out of those files, or give a drop_in that sorts after them",
            )
        )  # fmt: skip

    def _is_stale(self, mine: str, below: Effective) -> bool:
        """Whether a drop-in that repeats the whole table no longer repeats what the other files say by now."""
        ours = [one for one in self.all if one.path == mine and one.text.startswith(HEADER)]
        own = ours[0].cri() if ours else None
        if _merges(self._daemon) or own is None or not below.cri:
            return False
        added = {self._wanted.name, *(set(Effective(own).runtimes) - set(below.runtimes))}
        return bool(_rest(own, added) != _rest(below.cri, added))

    def _changes(
        self, path: str, below: Effective, entry: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Dict[str, Optional[str]]:
        content: Dict[str, Any] = {} if _merges(self._daemon) else copy.deepcopy(below.cri)
        containerd = content.setdefault("containerd", {})
        containerd.update(settings)
        runtimes = containerd.setdefault("runtimes", {})
        self._keep_default(below, settings, runtimes)
        runtimes[self._wanted.name] = dict(entry)
        if self._cdi():
            content["enable_cdi"] = True
        plugin = _PLUGINS.get(self.version, _PLUGIN)
        changes: Dict[str, Optional[str]] = {}
        changes[path] = self.text_of(path, {"version": self.version, "plugins": {plugin: content}})
        for one in self.all:
            if one.path != path and one.text.startswith(HEADER):
                changes[one.path] = None  # from before the place was another
        if not self.reads(path):
            # This one file: what else lies in its folder was not read so far.
            changes[self._places.config] = self.with_import(path)
        return changes

    def text_of(self, path: str, content: Dict[str, Any]) -> str:
        """A drop-in of our own, or what somebody else has there with our part in it."""
        there = self._reader.text(path)
        if there is None or there.startswith(HEADER):
            return HEADER + "\n" + dumps(content)
        toml = Toml(there)
        for key, value in content.items():
            if key != "version" or not toml.data:
                toml.set([key], value)
        return toml.text()

    def _keep_default(self, below: Effective, settings: Mapping[str, Any], runtimes: Dict[str, Any]) -> None:
        """Before 2.1, a runtime that is built in is gone as soon as a file defines another one: repeat it."""
        if _merges(self._daemon):
            return
        name = str(settings.get("default_runtime_name") or below.default or "runc")
        needed = {name} if below.runtimes else {name, "runc"}
        for one in sorted(needed - {self._wanted.name, *below.runtimes}):
            kept = meant(table(self._built_in.get(one))) or (self._plain() if one == "runc" else {})
            if kept:
                runtimes[one] = kept

    def reads(self, path: str) -> bool:
        """Whether the daemon imports this file."""
        patterns = [one for document in self.all for one in document.imports()] + list(self._places.imported)
        return bool(self.all) and any(_matches(path, pattern) for pattern in patterns)

    def with_import(self, pattern: str) -> str:
        """The main file, importing this too."""
        if not self._top:
            above = self._text or ""
            return (
                above
                + ("\n" if above and not above.endswith("\n") else "")
                + dumps({"version": self.version, "imports": [pattern]})
            )
        given = self._top.toml.data.get("imports")
        toml = Toml(self._top.text)
        toml.set(["imports"], [*(given if isinstance(given, list) else []), pattern])
        return toml.text()

    def _in_place(self, proposal: Proposal, now: Effective) -> None:
        entry, settings = self._entry(now), self._settings(now, now)
        if self._wanted.default is False and now.default == self._wanted.name:
            settings["default_runtime_name"] = self._earlier
        if self._is_right(now, entry, settings):
            return
        toml = Toml(self._text or "")
        if not self._top:
            toml.set(["version"], self.version)
        plugin = ["plugins", _PLUGINS.get(self.version, _PLUGIN)]
        kept: Dict[str, Any] = {}
        self._keep_default(now, settings, kept)
        for name, value in {**kept, self._wanted.name: entry}.items():
            toml.set([*plugin, "containerd", "runtimes", name], value)
        for key, value in settings.items():
            toml.set([*plugin, "containerd", key], value)
        if self._cdi():
            toml.set([*plugin, *(["containerd"] if self.version == 1 else []), "enable_cdi"], True)
        changed = Changed(self._reader, {self._places.config: toml.text()})
        if not self._is_right(effective(load(changed, self._places), self._daemon), entry, settings):
            later = [one.path for one in self.all if one.path != self._places.config and one.cri() is not None]
            proposal.findings.append(
                Finding(
                    "runtime_overridden", ERROR, f"{', '.join(later)} is imported by {self._places.config} and says "
                    f"otherwise of the runtime {self._wanted.name}, so it would have no effect there",
                    self._places.title, remedy="Take the CRI plugin out of that file, or use placement drop_in",
                )
            )  # fmt: skip
            return
        proposal.change(self._places.config, self._text, toml.text(), "gives the runtime")


@dataclass(frozen=True)
class Changed:
    """Files as they would be after changes."""

    reader: Reader
    changes: Mapping[str, Optional[str]]

    def text(self, path: str) -> Optional[str]:
        return self.changes[path] if path in self.changes else self.reader.text(path)

    def glob(self, pattern: str) -> List[str]:
        found = {path for path in self.reader.glob(pattern) if self.text(path) is not None}
        new = {path for path, text in self.changes.items() if text is not None and _matches(path, pattern)}
        return sorted(found | new)


def _matches(path: str, pattern: str) -> bool:
    """As Go's ``filepath.Match``: a star does not cross folders."""
    ours, theirs = path.split("/"), pattern.split("/")
    return len(ours) == len(theirs) and all(fnmatch.fnmatchcase(one, like) for one, like in zip(ours, theirs))


def _rest(cri: Mapping[str, Any], added: Set[str]) -> Any:
    """The plugin's table without what a drop-in says in it by itself."""
    kept = copy.deepcopy(dict(cri))
    containerd = table(kept.get("containerd"))
    containerd.pop("default_runtime_name", None)
    containerd.pop("enable_cdi", None)
    kept.pop("enable_cdi", None)
    for one in added:
        table(containerd.get("runtimes")).pop(one, None)
    return meant(kept)


def below_or(others: Effective, built_in: Mapping[str, Any]) -> Set[str]:
    """Names of runtimes that are there without us."""
    return {*others.runtimes, *built_in, "runc"}


def _runs_runc(entry: Mapping[str, Any], name: str) -> bool:
    """Whether a runtime is of runc's kind: the NVIDIA runtime calls runc or crun, never a virtual machine."""
    kind = str(entry.get("runtime_type") or "")
    return name in ("runc", "crun") or not kind.startswith("io.containerd.") or "run" in kind.split(".")[2][:4]


def _merges(daemon: Version) -> bool:
    return bool(daemon and daemon >= _MERGES)
