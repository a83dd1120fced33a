# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where our part goes, and what it says: the planners beside the forty cases."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import (
    _containerd,
    _docker,
    _rancher,
    _toolkit_config,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._daemons import differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._json import Json
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toml import parse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._types import Proposal, Wanted
from ansible_collections.gpufleet.nvidia.tests.helpers.runtime_cases import RUNC, P, runtime
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.runtimes.test_cases import BUILT_IN, Given

V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
TOP = "version = 2\n" + IMPORTS + runtime("runc", options="SystemdCgroup = true", runtime_type=f'"{RUNC}"')


def plan(files: Given, daemon: tuple[int, ...] | None, **wish: Any) -> Proposal:
    return _containerd.plan(files, _containerd.Places(), Wanted(**wish), daemon, BUILT_IN)


def drop_in(files: Given) -> dict[str, Any]:
    return parse(files.files[_containerd.DROP_IN])


@pytest.mark.rows("H068")
def test_from_2_1_on_a_drop_in_has_the_runtime_alone() -> None:
    files = Given({_containerd.CONFIG: TOP})
    files.take(plan(files, (2, 4, 2)))
    entry = {"runtime_type": RUNC, "options": {"SystemdCgroup": True, "BinaryName": P}}
    assert drop_in(files) == {"version": 2, "plugins": {V2: {"containerd": {"runtimes": {"nvidia": entry}}}}}
    files = Given({})
    files.take(plan(files, (2, 4, 2)))
    assert list(drop_in(files)["plugins"][V3]["containerd"]["runtimes"]) == ["nvidia"]


@pytest.mark.rows("H069", "P001")
def test_a_drop_in_that_hides_what_changed_is_made_anew() -> None:
    files = Given({_containerd.CONFIG: TOP})
    files.take(plan(files, (1, 7, 24)))
    changed = TOP + f'[plugins."{V2}".cni]\n  bin_dir = "/opt/bin"\n'
    files.files[_containerd.CONFIG] = changed
    files.take(plan(files, (1, 7, 24)))
    assert drop_in(files)["plugins"][V2]["cni"] == {"bin_dir": "/opt/bin"}
    assert plan(files, (1, 7, 24)).changes == []
    assert files.files[_containerd.CONFIG] == changed


@pytest.mark.rows("P007")
def test_a_later_file_that_hides_ours_is_passed_by_a_name_that_sorts_last() -> None:
    later = f'version = 2\n[plugins."{V2}".registry]\n  config_path = "/opt/certs.d"\n'
    files = Given({_containerd.CONFIG: TOP, "/etc/containerd/conf.d/99-z.toml": later})
    files.take(plan(files, (1, 7, 24)))
    assert "/etc/containerd/conf.d/zz-nvidia.toml" in files.files
    assert _containerd.DROP_IN not in files.files
    now = _containerd.effective(_containerd.load(files, _containerd.Places()), (1, 7, 24))
    assert now.runtimes["nvidia"]["options"]["BinaryName"] == P
    assert now.cri["registry"] == {"config_path": "/opt/certs.d"}
    assert plan(files, (1, 7, 24)).changes == []


def test_cdi_is_switched_on_where_it_is_not_on_by_itself() -> None:
    for daemon, expected in (((1, 7, 24), True), ((2, 4, 2), None)):
        files = Given({_containerd.CONFIG: TOP})
        files.take(plan(files, daemon, cdi=True))
        assert drop_in(files)["plugins"][V2].get("enable_cdi") is expected
        files.files[_containerd.DROP_IN] = files.files[_containerd.DROP_IN].replace("enable_cdi = true\n", "")
        assert bool(plan(files, daemon, cdi=True).changes) is bool(expected)
    assert [one.id for one in plan(Given({}), (1, 6, 20), cdi=True).findings] == ["containerd_without_cdi"]


@pytest.mark.rows("P010")
def test_the_kubelets_cgroup_driver_counts_where_no_runtime_tells() -> None:
    files = Given({})
    files.take(plan(files, (1, 7, 24), systemd_cgroup=True))
    runtimes = drop_in(files)["plugins"][V2]["containerd"]["runtimes"]
    assert runtimes["nvidia"]["options"] == {"BinaryName": P, "SystemdCgroup": True}


@pytest.mark.rows("P007", "P010")
@pytest.mark.parametrize("daemon", [(1, 6, 20), (1, 7, 24)])
def test_a_default_runtime_that_somebody_elses_file_took_away_is_put_back(daemon: tuple[int, ...]) -> None:
    """nvidia-ctk's drop-in on a stock configuration: the built-in runc is gone, and the CRI plugin does not start."""
    theirs = "version = 2\n" + runtime("nvidia", options=f'BinaryName = "{P}"', runtime_type=f'"{RUNC}"')
    files = Given({_containerd.CONFIG: "version = 2\n" + IMPORTS, _containerd.DROP_IN: theirs})
    gone = {"nvidia": {"runtime_type": RUNC, "options": {"BinaryName": P}}}
    proposal = _containerd.plan(files, _containerd.Places(), Wanted(systemd_cgroup=True), daemon, gone)
    files.take(proposal)
    found = drop_in(files)["plugins"][V2]["containerd"]["runtimes"]
    assert found["runc"] == {"runtime_type": RUNC, "options": {"SystemdCgroup": True}}
    assert found["nvidia"]["options"]["BinaryName"] == P
    again = _containerd.plan(files, _containerd.Places(), Wanted(systemd_cgroup=True), daemon, gone)
    assert again.changes == []
    before = {"plugins": {V2: {"containerd": {"default_runtime_name": "runc", "runtimes": gone}}}}
    after = {"plugins": {V2: {"containerd": {"default_runtime_name": "runc", "runtimes": {**gone, **found}}}}}
    assert differences(before, after, Wanted()) == []
    assert differences(after, before, Wanted()) != []


@pytest.mark.rows("P017", "H084", "H074")
def test_a_flag_of_dockerd_that_says_the_same_is_refused() -> None:
    files = Given({_docker.CONFIG: "{}"})
    flags = ["/usr/bin/dockerd", "--default-runtime=runc"]
    found = _docker.plan(files, _docker.CONFIG, Wanted(default=True), (26, 1, 5), flags)
    assert [(one.id, one.severity) for one in found.findings] == [("docker_flag_conflict", "error")]
    assert _docker.plan(files, _docker.CONFIG, Wanted(), (26, 1, 5), flags).findings == []


@pytest.mark.parametrize(
    ("text", "daemon", "features"),
    [
        ("{}", (26, 1, 5), {"cdi": True}),
        ("{}", (28, 3, 0), None),
        ('{"features": {"cdi": false}}', (28, 3, 0), {"cdi": True}),
        ("{}", None, {"cdi": True}),
    ],
)
def test_docker_is_told_of_cdi_where_it_would_not_do_it(text: str, daemon: Any, features: Any) -> None:
    files = Given({_docker.CONFIG: text})
    files.take(_docker.plan(files, _docker.CONFIG, Wanted(cdi=True), daemon))
    assert Json(files.files[_docker.CONFIG]).data.get("features") == features


def test_docker_before_25_knows_no_cdi() -> None:
    found = _docker.plan(Given({}), _docker.CONFIG, Wanted(cdi=True), (20, 10, 24)).findings
    assert [one.id for one in found] == ["docker_without_cdi"]


@pytest.mark.rows("H077")
@pytest.mark.parametrize("text", ['{{ template "base" . }}\n# ours\n', "{{ range .NvidiaRuntimes }}\n{{ end }}\n"])
def test_a_template_of_k3s_that_gives_the_runtime_itself_stays(text: str) -> None:
    folder = "/var/lib/rancher/k3s/agent/etc/containerd"
    files = Given({f"{folder}/config.toml": "version = 2\n", f"{folder}/config.toml.tmpl": text})
    assert _rancher.plan(files, f"{folder}/config.toml", Wanted(), "k3s").changes == []


def test_what_was_to_be_changed_is_no_difference_and_all_else_is() -> None:
    base = {"imports": ["/a"], "plugins": {V2: {"containerd": {"runtimes": {"runc": {"x": 1}}}, "sandbox_image": "p"}}}
    same = {"plugins": {V2: {"containerd": {"runtimes": {"runc": {"x": 1}, "nvidia": {}}}, "sandbox_image": "p"}}}
    assert differences(base, same, Wanted()) == []
    other = {"plugins": {V2: {"containerd": {"runtimes": {}, "default_runtime_name": "nvidia"}, "sandbox_image": "q"}}}
    assert differences(base, other, Wanted()) == [
        f"plugins.{V2}.containerd.default_runtime_name",
        f"plugins.{V2}.containerd.runtimes",
        f"plugins.{V2}.sandbox_image",
    ]
    assert f"plugins.{V2}.containerd.default_runtime_name" not in differences(base, other, Wanted(default=True))


FOREIGN = f'version = 2\n[plugins."{V2}"]\n  sandbox_image = "mirror/pause:1"\n' + runtime(
    "kata", runtime_type='"io.containerd.kata.v2"'
)


@pytest.mark.rows("P005")
@pytest.mark.parametrize("daemon", [(1, 7, 24), (2, 4, 2), None])
def test_what_somebody_else_says_in_the_drop_in_stays(daemon: Any) -> None:
    files = Given({_containerd.CONFIG: TOP, _containerd.DROP_IN: FOREIGN})
    before = _containerd.effective(_containerd.load(files, _containerd.Places()), daemon)
    files.take(plan(files, daemon))
    after = _containerd.effective(_containerd.load(files, _containerd.Places()), daemon)
    assert after.runtimes["nvidia"]["options"]["BinaryName"] == P
    assert after.runtimes["kata"] == before.runtimes["kata"]
    assert after.cri["sandbox_image"] == "mirror/pause:1"
    assert files.files[_containerd.DROP_IN].startswith("version = 2\n")
    assert plan(files, daemon).changes == []


def test_files_that_were_not_read_so_far_stay_unread() -> None:
    other = f'version = 2\n[plugins."{V2}".containerd]\n  snapshotter = "native"\n'
    bare = TOP.replace(IMPORTS, "")
    files = Given({_containerd.CONFIG: bare, "/etc/containerd/conf.d/10-old.toml": other})
    files.take(plan(files, (1, 7, 24)))
    now = _containerd.effective(_containerd.load(files, _containerd.Places()), (1, 7, 24))
    assert "nvidia" in now.runtimes
    assert "snapshotter" not in now.cri["containerd"]
    assert plan(files, (1, 7, 24)).changes == []


def test_a_file_that_ends_in_a_comment_gets_its_version_on_a_line_of_its_own() -> None:
    files = Given({_containerd.CONFIG: "# managed by chef"})
    files.take(plan(files, (1, 7, 24)))
    assert parse(files.files[_containerd.CONFIG])["version"] == 2


def test_an_imported_file_without_a_version_has_that_of_its_importer() -> None:
    part = runtime("runc", options="SystemdCgroup = true", runtime_type=f'"{RUNC}"')
    files = Given({_containerd.CONFIG: "version = 2\n" + IMPORTS, "/etc/containerd/conf.d/10-a.toml": part})
    files.take(plan(files, (1, 7, 24)))
    assert drop_in(files)["plugins"][V2]["containerd"]["runtimes"]["nvidia"]["options"]["SystemdCgroup"] is True


def test_a_default_runtime_that_was_ours_under_another_name_is_the_new_one() -> None:
    files = Given({_containerd.CONFIG: TOP})
    files.take(plan(files, (2, 4, 2), default=True))
    files.take(plan(files, (2, 4, 2), name="gpu"))
    now = _containerd.effective(_containerd.load(files, _containerd.Places()), (2, 4, 2))
    assert now.default == "gpu"
    assert "gpu" in now.runtimes


def test_a_default_runtime_of_virtual_machines_is_not_copied() -> None:
    text = TOP + f'[plugins."{V2}".containerd]\n  default_runtime_name = "kata"\n'
    text += runtime("kata", runtime_type='"io.containerd.kata.v2"')
    files = Given({_containerd.CONFIG: text})
    files.take(plan(files, (2, 4, 2)))
    assert drop_in(files)["plugins"][V2]["containerd"]["runtimes"]["nvidia"]["runtime_type"] == RUNC


@pytest.mark.parametrize("text", ['{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}'])
def test_a_program_by_name_is_as_good_as_its_path(text: str) -> None:
    assert _docker.plan(Given({_docker.CONFIG: text}), _docker.CONFIG, Wanted(), (26, 1, 5)).changes == []


def test_a_runtime_by_flag_of_dockerd_needs_nothing() -> None:
    found = _docker.plan(Given({}), _docker.CONFIG, Wanted(), (26, 1, 5), ["dockerd", f"--add-runtime=nvidia={P}"])
    assert (found.changes, found.findings) == ([], [])


def test_another_place_for_the_drop_in_takes_the_place_of_the_old_one() -> None:
    files = Given({_containerd.CONFIG: TOP})
    files.take(plan(files, (1, 7, 24), default=True))
    places = _containerd.Places(drop_in="/etc/containerd/conf.d/50-x.toml")
    files.take(_containerd.plan(files, places, Wanted(), (1, 7, 24), BUILT_IN))
    assert sorted(files.files) == ["/etc/containerd/conf.d/50-x.toml", _containerd.CONFIG]
    assert _containerd.effective(_containerd.load(files, places), (1, 7, 24)).default == "nvidia"
    assert _containerd.plan(files, places, Wanted(), (1, 7, 24), BUILT_IN).changes == []


@pytest.mark.rows("H078", "P002")
@pytest.mark.parametrize(
    "wanted", [{"nvidia-container-cli.no-cgroups": "True"}, {"nvidia-container-cli": {"no-cgroups": True}}]
)
def test_settings_may_be_texts_and_tables(wanted: Any) -> None:
    text, findings = _toolkit_config.change("", wanted)
    assert findings == []
    assert parse(text) == {"nvidia-container-cli": {"no-cgroups": True}}
