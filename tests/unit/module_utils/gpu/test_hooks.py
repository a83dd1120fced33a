# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of mig-parted: read strictly, run around a change with an environment of their own, and only then."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._hooks import Hook, read_hooks
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

MIXED = [{"profiles": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}}]
ALL = ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")


class Stage:
    """A host whose hooks write their names, and what a test wants of one, into a file."""

    def __init__(self, host, folder) -> None:
        self.host, self.file = host, folder / "hooks"
        host.systemd = False

    def hooks(self, **scripts: str) -> dict:
        """``apply_exit="exit 3"`` is what that hook does after it has written its name."""
        return {
            "version": "v1",
            "hooks": {
                name: [
                    {
                        "command": "sh",
                        "args": ["-c", f"echo {name} >>$OUT; {scripts.get(name.replace('-', '_'), '')}"],
                        "envs": {"OUT": str(self.file)},
                    }
                ]
                for name in ALL
            },
        }

    def run(self, **params):
        tools = self.host.tools()
        tools.runner = Runner()
        return self.host.run(tools=tools, **params)

    def fails(self, **params) -> Failure:
        with pytest.raises(Failure) as failure:
            self.run(**params)
        return failure.value

    def said(self) -> list[str]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def stage(host, tmp_path):
    return Stage(host, tmp_path)


@pytest.mark.rows("MH-05")
def test_hooks_are_run_around_a_change_and_only_then(stage):
    stage.run(check=True, layout=MIXED, hooks=stage.hooks())
    assert stage.said() == []
    lines: list[str] = []
    stage.run(layout=MIXED, hooks=stage.hooks(), lines=lines)
    assert stage.said() == ["apply-start", "pre-apply-config", "apply-exit"]  # no MIG mode changes
    assert [lines[0], lines[-1]] == ["hook apply-start: sh", "hook apply-exit: sh"]
    stage.run(layout=MIXED, hooks=stage.hooks())
    assert stage.said() == []
    stage.run(layout=[{"enabled": False}], hooks=stage.hooks())
    assert stage.said() == list(ALL)


@pytest.mark.rows("MH-05")
def test_a_hook_has_its_own_environment_with_the_runs_laid_over_it_and_nothing_else(stage, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/somebody")
    folder = tmp_path / "work"
    folder.mkdir()
    envs = {"MINE": "a b", "MIG_PARTED_SELECTED_CONFIG": "other"}
    hook = {"command": "env", "args": ["-0"], "envs": envs, "workdir": str(folder)}
    seen: dict = {}

    class Watching(Runner):
        """Keeps what the program wrote."""

        def run(self, argv, **more):
            done = super().run(argv, **more)
            seen.update(dict(line.split("=", 1) for line in done.out.split("\0") if line), folder=more["folder"])
            return done

    tools = stage.host.tools()
    tools.runner = Watching()
    name = "all-balanced"
    stage.host.run(tools=tools, name=name, hooks={"version": "v1", "hooks": {"apply-start": [hook]}})
    assert seen == {
        "MINE": "a b",
        "MIG_PARTED_SELECTED_CONFIG": name,
        "MIG_PARTED_CONFIG_FILE": "",
        "MIG_PARTED_HOOKS_FILE": "",
        "MIG_PARTED_SKIP_RESET": "true",
        "MIG_PARTED_MODE_CHANGE_ONLY": "false",
        "folder": str(folder),
    }


@pytest.mark.rows("MH-05")
@pytest.mark.parametrize(
    ("name", "ran"),
    [
        ("apply_start", ["apply-start"]),
        ("pre_apply_config", ["apply-start", "pre-apply-config", "apply-exit"]),
    ],
)
def test_a_hook_that_fails_before_the_change_ends_the_run(stage, name, ran):
    stage.host.forget()
    failure = stage.fails(layout=MIXED, hooks=stage.hooks(**{name: "echo no room >&2; exit 3"}))
    assert f"Hook {name.replace('_', '-')}: " in failure.msg
    assert failure.msg.endswith("failed with status 3: no room. No GPU has been changed.")
    assert stage.said() == ran
    assert stage.host.writes() == []
    assert (failure.result.changed, failure.remaining) == (False, ["gpu-0"])


@pytest.mark.rows("MH-05")
def test_the_last_hook_is_run_after_a_failed_step_and_its_own_failure_is_told_beside_it(stage):
    stage.host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=UNKNOWN")
    msg = stage.fails(layout=MIXED, hooks=stage.hooks(apply_exit="exit 4")).msg
    assert stage.said()[-1] == "apply-exit"
    assert "UNKNOWN" in msg
    assert "The old layout is back. Hook apply-exit:" in msg
    failure = stage.fails(layout=MIXED, hooks=stage.hooks(apply_exit="exit 5"))
    assert failure.msg.startswith("The layout is made, but Hook apply-exit:")
    assert "status 5" in failure.msg
    assert failure.done == ["gpu-0"]


@pytest.mark.rows("MH-05")
def test_a_program_or_folder_that_is_not_there_is_named(stage, tmp_path):
    for hook, words in (
        ({"command": "/nowhere/program"}, "`/nowhere/program` cannot be run on this host"),
        ({"command": "true", "workdir": "/nowhere"}, "`/nowhere` cannot be run on this host"),
    ):
        assert words in stage.fails(layout=MIXED, hooks={"version": "v1", "hooks": {"apply-start": [hook]}}).msg


@pytest.mark.rows("MH-05")
@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "hooks: is a list; a file of hooks is a mapping"),
        ({"hooks": {}}, "hooks.version: is None; only v1 is known"),
        ({"version": "v1"}, "hooks.hooks: is a NoneType; it maps names"),
        ({"version": "v1", "hooks": {}, "more": 1}, "hooks.more: is not known"),
        ({"version": "v1", "hooks": {"pre-start": []}}, "hooks.hooks.pre-start: is not known. Known are apply-start"),
        ({"version": "v1", "hooks": {"apply-exit": {}}}, "hooks.hooks.apply-exit: is a dict; it is a list"),
        ({"version": "v1", "hooks": {"apply-exit": ["x"]}}, "apply-exit[0]: is a str; a hook is a mapping"),
        ({"version": "v1", "hooks": {"apply-exit": [{"args": []}]}}, "apply-exit[0].command: is None"),
        ({"version": "v1", "hooks": {"apply-exit": [{"command": "a", "arg": []}]}}, "apply-exit[0].arg: is not known"),
        ({"version": "v1", "hooks": {"apply-exit": [{"command": "a", "args": [1]}]}}, "args: is no list of texts"),
        ({"version": "v1", "hooks": {"apply-exit": [{"command": "a", "envs": {"A": True}}]}}, "envs: does not map"),
        ({"version": "v1", "hooks": {"apply-exit": [{"command": "a", "workdir": "b"}]}}, "workdir: is 'b'; it is a"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_path_before_any_change(stage, document, problem):
    assert any(problem in finding.sentence() for finding in read_hooks(document)[1])
    for check in (True, False):
        stage.host.forget()
        assert problem in stage.fails(check=check, layout=MIXED, hooks=document).msg
        assert stage.host.writes() == []


def test_what_is_left_out_has_its_default():
    document = {"version": "v1", "hooks": {"apply-exit": [{"command": "a", "args": None, "envs": None}]}}
    assert read_hooks(document) == ({"apply-exit": [Hook("a")]}, [])
