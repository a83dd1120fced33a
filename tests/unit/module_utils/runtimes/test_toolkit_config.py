# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit's own configuration: keys it knows, set once; what is misspelt or contradicts itself is told."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toolkit_config import (
    KEYS,
    PATH,
    change,
    read,
)
from ansible_collections.gpufleet.nvidia.tests.helpers.toml_documents import read as independent

pytestmark = pytest.mark.rows("H078")

# As release 1.20 writes it, with a comment of the host's owner.
DEFAULT = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
ldconfig = "@/sbin/ldconfig" # host's own
load-kmods = true
#no-cgroups = false

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false
"""
CLI, RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"


def changed(wanted: dict[str, Any], text: str | None = DEFAULT) -> str:
    new, findings = change(text, wanted)
    assert findings == []
    again, findings = change(new, wanted)
    assert again == new
    assert findings == []
    return new


def ids(wanted: dict[str, Any], text: str | None = DEFAULT) -> list[str]:
    new, findings = change(text, wanted)
    if any(one.severity == "error" for one in findings):
        assert new == (text or "")
    assert all(one.sentence() and one.remedy for one in findings)
    return [one.id for one in findings]


def test_case_39_no_cgroups_is_set_and_other_keys_stay() -> None:
    new = changed({f"{CLI}.no-cgroups": True})
    assert new == DEFAULT.replace("load-kmods = true\n", "load-kmods = true\nno-cgroups = true\n")


def test_case_40_low_level_runtimes_are_a_list() -> None:
    new = changed({f"{RUNTIME}.runtimes": ["crun", "runc"]})
    assert new == DEFAULT.replace('["runc", "crun"]', '["crun", "runc"]')


def test_a_file_that_says_it_already_stays_as_it_is() -> None:
    data = read(DEFAULT)
    assert len(data) == 13
    assert changed(data) == DEFAULT
    assert change(DEFAULT, {}) == (DEFAULT, [])
    assert change(None, {}) == ("", [])


def test_none_takes_a_key_away() -> None:
    assert changed({f"{CLI}.load-kmods": None, "swarm-resource": None}) == DEFAULT.replace("load-kmods = true\n", "")


def test_a_file_that_is_not_there_is_made() -> None:
    new = changed(
        {f"{RUNTIME}.mode": "cdi", "features.allow-unknown-oci-spec-fields": True, "disable-require": True}, None
    )
    assert independent(new) == {
        RUNTIME: {"mode": "cdi"},
        "features": {"allow-unknown-oci-spec-fields": True},
        "disable-require": True,
    }


def test_every_known_key_takes_its_default() -> None:
    wanted = {key: known.default for key, known in KEYS.items() if known.default is not None}
    assert read(changed(wanted, "")) == wanted
    assert changed(dict.fromkeys(wanted), changed(wanted, "")).count("=") == 0


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("no-cgroups", f"{CLI}.no-cgroups"),
        (f"{CLI}.no-cgroup", f"{CLI}.no-cgroups"),
        (f"{RUNTIME}.runtime", f"{RUNTIME}.runtimes"),
        ("accept-nvidia-visible-devices-as-volume-mount", "accept-nvidia-visible-devices-as-volume-mounts"),
        ("features.gds", "nvidia-ctk config default"),
        ("", "nvidia-ctk config default"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(key: str, near: str) -> None:
    new, findings = change(DEFAULT, {key: True, f"{CLI}.no-pivot": True})
    assert new == DEFAULT
    assert [(one.id, one.severity, one.path) for one in findings] == [
        ("toolkit_config_unknown", "error", f"config.{key}")
    ]
    assert near in findings[0].remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("disable-require", "yes"),
        ("disable-require", 1),
        (f"{CLI}.environment", "A=b"),
        (f"{CLI}.environment", ["A"]),
        (f"{CLI}.environment", [1]),
        (f"{RUNTIME}.mode", "CDI"),
        (f"{RUNTIME}.log-level", "verbose"),
        (f"{RUNTIME}.runtimes", []),
        (f"{RUNTIME}.runtimes", "crun:runc"),
        (f"{RUNTIME}.modes.cdi.spec-dirs", ["etc/cdi"]),
        (f"{RUNTIME}.modes.cdi.default-kind", "gpu"),
        (f"{RUNTIME}.modes.legacy.cuda-compat-mode", "on"),
        ("supported-driver-capabilities", "compute,utillity"),
        ("swarm-resource", None.__class__),
    ],
)
def test_a_value_that_the_toolkit_cannot_use_is_refused(key: str, value: Any) -> None:
    assert ids({key: value}) == ["toolkit_config_value"]


def test_ldconfig_of_the_container_needs_the_feature() -> None:
    free = "features.allow-ldconfig-from-container"
    assert ids({f"{CLI}.ldconfig": "/sbin/ldconfig"}) == ["toolkit_config_ldconfig"]
    assert change(DEFAULT, {f"{CLI}.ldconfig": "/sbin/ldconfig"})[0] == DEFAULT
    assert 'ldconfig = "/sbin/ldconfig" # host' in changed({f"{CLI}.ldconfig": "/sbin/ldconfig", free: True})
    there = DEFAULT.replace("@/sbin", "/sbin")
    text, findings = change(there, {f"{CLI}.no-cgroups": True})
    assert [(one.id, one.severity) for one in findings] == [("toolkit_config_ldconfig", "warning")]
    assert "no-cgroups = true" in text


def test_containers_that_can_ask_in_no_way_are_told() -> None:
    envvar, mounts = (
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
        "accept-nvidia-visible-devices-as-volume-mounts",
    )
    assert ids({envvar: False}) == ["toolkit_config_no_requests"]
    assert ids({envvar: False, mounts: True}) == []


def test_keys_of_the_file_that_the_toolkit_does_not_know_are_told() -> None:
    text = DEFAULT + "[features]\ngds = true\nallow-unknown-oci-spec-field = true\n"
    new, findings = change(text, {f"{CLI}.no-cgroups": True})
    assert new != text
    assert [(one.severity, one.target, one.path) for one in findings] == [
        ("info", PATH, "features.gds"),
        ("warning", PATH, "features.allow-unknown-oci-spec-field"),
    ]
    assert ids({}, DEFAULT.replace('mode = "auto"', "mode = 1")) == ["toolkit_config_wrong_there"]
    assert changed({f"{RUNTIME}.mode": "auto"}, DEFAULT.replace('mode = "auto"', "mode = 1")) == DEFAULT


@pytest.mark.parametrize("text", ["a = \n", "nvidia-container-cli = 1\n", "\0\0", "[x\n", "\udcff"])
def test_a_broken_file_is_left_alone(text: str) -> None:
    assert ids({f"{CLI}.no-cgroups": True}, text)[-1:] == ["toolkit_config_broken"]
