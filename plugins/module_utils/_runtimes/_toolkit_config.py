# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit's own configuration. It is read anew for every container: no daemon has to be restarted.

Keys and defaults are those of NVIDIA Container Toolkit 1.20 (host-plane facts, 3.7).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .._plan import ERROR, INFO, WARNING, Finding
from ._toml import Toml, TomlError, parse

PATH = "/etc/nvidia-container-runtime/config.toml"

_CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
_LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "fatal", "panic")


def _is(value: Any, kind: type) -> bool:
    """Whether a value is of a kind; a boolean is no number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


@dataclass(frozen=True)
class Key:
    """``kind`` is the type of the value, ``allowed`` what a text may be ("" in it: also nothing), () for any."""

    kind: type
    default: Any = None
    allowed: Tuple[str, ...] = ()
    check: Optional[Callable[[Any], str]] = None

    def wrong(self, value: Any) -> str:
        """What is wrong with a value; empty where nothing is."""
        if not _is(value, self.kind) or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
            return f"{value!r:.60} is no {_KINDS[self.kind]}"
        if self.allowed and value not in self.allowed:
            return f"{value!r:.60} is none of {', '.join(self.allowed)}"
        return self.check(value) if self.check else ""


_KINDS = {bool: "boolean", str: "text", list: "list of texts"}


def _capabilities(value: str) -> str:
    unknown = [one for one in value.split(",") if one not in _CAPABILITIES]
    return (
        f"{', '.join(map(repr, unknown))} is none of {', '.join(_CAPABILITIES)}" if unknown and value != "all" else ""
    )


def _some(value: List[str]) -> str:
    return "" if value and all(value) else "it has no entries"


def _pairs(value: List[str]) -> str:
    wrong = [one for one in value if not one.partition("=")[0] or "=" not in one]
    return f"{wrong[0]!r:.60} is not of the form NAME=value" if wrong else ""


def _folders(value: List[str]) -> str:
    wrong = [one for one in value if not one.startswith("/")]
    return f"{wrong[0]!r:.60} is no absolute path" if wrong else _some(value)


def _kind(value: str) -> str:
    vendor, slash, name = value.partition("/")
    return "" if vendor and slash and name else f"{value!r:.60} is not of the form vendor/class"


_FEATURES = (
    "allow-cuda-compat-libs-from-container",
    "allow-ldconfig-from-container",
    "allow-unknown-oci-spec-fields",
    "disable-cuda-compat-lib-hook",
    "disable-imex-channel-creation",
    "ignore-imex-channel-requests",
    "no-additional-gids-for-device-nodes",
)
_MODES = ("auto", "legacy", "cdi", "csv", "jit-cdi")
ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
LDCONFIG = "nvidia-container-cli.ldconfig"
FREE_LDCONFIG = "features.allow-ldconfig-from-container"

KEYS: Dict[str, Key] = {
    "disable-require": Key(bool, False),
    "swarm-resource": Key(str),
    ENVVAR: Key(bool, True),
    MOUNTS: Key(bool, False),
    "supported-driver-capabilities": Key(str, ",".join(_CAPABILITIES), check=_capabilities),
    "nvidia-container-cli.root": Key(str),
    "nvidia-container-cli.path": Key(str, ""),
    "nvidia-container-cli.environment": Key(list, [], check=_pairs),
    "nvidia-container-cli.debug": Key(str),
    "nvidia-container-cli.ldcache": Key(str),
    "nvidia-container-cli.load-kmods": Key(bool, True),
    "nvidia-container-cli.no-cgroups": Key(bool, False),
    "nvidia-container-cli.no-pivot": Key(bool),
    "nvidia-container-cli.user": Key(str, ""),
    LDCONFIG: Key(str, "@/sbin/ldconfig"),
    "nvidia-container-runtime.debug": Key(str, "/dev/null"),
    "nvidia-container-runtime.log-level": Key(str, "info", _LEVELS),
    "nvidia-container-runtime.runtimes": Key(list, ["runc", "crun"], check=_some),
    "nvidia-container-runtime.mode": Key(str, "auto", _MODES),
    "nvidia-container-runtime.modes.cdi.spec-dirs": Key(list, ["/etc/cdi", "/var/run/cdi"], check=_folders),
    "nvidia-container-runtime.modes.cdi.default-kind": Key(str, "nvidia.com/gpu", check=_kind),
    "nvidia-container-runtime.modes.cdi.annotation-prefixes": Key(list, ["cdi.k8s.io/"]),
    "nvidia-container-runtime.modes.csv.mount-spec-path": Key(
        str, "/etc/nvidia-container-runtime/host-files-for-container.d"
    ),
    "nvidia-container-runtime.modes.csv.compat-container-root": Key(str),
    "nvidia-container-runtime.modes.legacy.cuda-compat-mode": Key(
        str, "ldconfig", ("ldconfig", "hook", "mount", "disabled")
    ),
    "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags": Key(list),
    "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks": Key(list),
    "nvidia-container-runtime-hook.path": Key(str, "nvidia-container-runtime-hook"),
    "nvidia-container-runtime-hook.skip-mode-detection": Key(bool, False),
    "nvidia-ctk.path": Key(str, "nvidia-ctk"),
    **{f"features.{name}": Key(bool, False) for name in _FEATURES},
}


def read(text: Optional[str]) -> Dict[str, Any]:
    """What a file sets, by dotted key, unknown ones too. Raises ``TomlError``."""
    return dict(_leaves("", parse(text or "")))


def change(
    text: Optional[str], wanted: Mapping[str, Any], *, target: str = PATH, option: str = "config"
) -> Tuple[str, List[Finding]]:
    """The file with each of these keys at its value, None taking a key away (the toolkit's default then holds).

    ``option`` is the option that ``wanted`` comes from. With an error among the findings the text is as it was.
    """
    before = text or ""
    wanted = {key: _plain(key, value) for key, value in _leaves("", wanted)}
    findings = [one for key, value in wanted.items() for one in _judge(key, value, option)]
    try:
        document = Toml(before)
        if not any(one.severity == ERROR for one in findings):
            for key, value in wanted.items():
                if key not in KEYS:
                    continue
                if value is None:
                    document.delete(key.split("."))
                else:
                    document.set(key.split("."), value)
    except TomlError as error:
        remedy = f"Correct the file, or move it away and run: nvidia-ctk config default > {target}"
        broken = Finding("toolkit_config_broken", ERROR, f"it cannot be used: {error}", target, "", remedy)
        return before, [*findings, broken]
    findings += _together(dict(_leaves("", document.data)), wanted, target, option)
    findings += _there(dict(_leaves("", document.data)), wanted, target)
    if any(one.severity == ERROR for one in findings):
        return before, findings
    return document.text(), findings


def _plain(key: str, value: Any) -> Any:
    """A boolean that came as a text, as from Ansible's command line."""
    known = KEYS.get(key)
    if known and known.kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def _leaves(above: str, table: Mapping[str, Any]) -> Iterator[Tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(f"{above}{name}.", value)
        else:
            yield f"{above}{name}", value


def _nearest(key: str) -> str:
    """The known key that a misspelt one may mean; a key is known by its last name, too."""
    last = {name.rpartition(".")[2]: name for name in KEYS}
    found = difflib.get_close_matches(key, KEYS, 1, 0.8)
    if not found:
        found = [last[one] for one in difflib.get_close_matches(key.rpartition(".")[2], last, 1, 0.85)]
    return found[0] if found else ""


def _judge(key: str, value: Any, option: str) -> Iterator[Finding]:
    path = f"{option}.{key}"
    known = KEYS.get(key)
    if known is None:
        near = _nearest(key)
        remedy = f"Did you mean {near}?" if near else "Keys are those of `nvidia-ctk config default`, with dots."
        yield Finding("toolkit_config_unknown", ERROR, "the toolkit has no such key", "", path, remedy)
    elif value is not None:
        wrong = known.wrong(value)
        if wrong:
            default = f"The toolkit's default is {known.default!r}" if known.default else "None takes the key away"
            remedy = f"Give a {_KINDS[known.kind]} that the toolkit knows. {default}."
            yield Finding("toolkit_config_value", ERROR, wrong, "", path, remedy)


def _together(now: Mapping[str, Any], wanted: Mapping[str, Any], target: str, option: str) -> Iterator[Finding]:
    """What contradicts itself in the file as it will be."""
    ldconfig = now.get(LDCONFIG)
    if isinstance(ldconfig, str) and ldconfig and not ldconfig.startswith("@") and not now.get(FREE_LDCONFIG):
        yield Finding(
            "toolkit_config_ldconfig",
            ERROR if LDCONFIG in wanted or FREE_LDCONFIG in wanted else WARNING,
            f"{ldconfig} would be run from within the container, which the toolkit refuses",
            "" if LDCONFIG in wanted else target,
            f"{option}.{LDCONFIG}" if LDCONFIG in wanted else LDCONFIG,
            f"Write @{ldconfig} (the host's own), or set {FREE_LDCONFIG} to true.",
        )
    if now.get(ENVVAR) is False and now.get(MOUNTS) is not True and (ENVVAR in wanted or MOUNTS in wanted):
        yield Finding(
            "toolkit_config_no_requests",
            WARNING,
            "unprivileged containers can ask for GPUs neither by environment nor by volume mounts; CDI alone is left",
            "",
            f"{option}.{MOUNTS}",
            "Set it to true where the device plugin's list strategy is volume-mounts.",
        )


def _there(now: Mapping[str, Any], wanted: Mapping[str, Any], target: str) -> Iterator[Finding]:
    """Keys of the file that the toolkit does not know, or cannot read."""
    for key, value in now.items():
        if key in wanted:
            continue
        known, near = KEYS.get(key), _nearest(key)
        if known is None:
            remedy = f"Did you mean {near}?" if near else "Look whether another release of the toolkit has it."
            detail = "the toolkit knows no such key and passes over it"
            yield Finding("toolkit_config_unknown_there", WARNING if near else INFO, detail, target, key, remedy)
        elif not _is(value, known.kind):
            detail = f"{value!r:.60} is no {_KINDS[known.kind]}: the toolkit cannot read the file"
            remedy = f"Set the key to a {_KINDS[known.kind]}, or take the line away."
            yield Finding("toolkit_config_wrong_there", WARNING, detail, target, key, remedy)
