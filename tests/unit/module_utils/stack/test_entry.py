# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import KubeError, MissingPackage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._module import progress_to
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Action, Failure, Finding, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


class _Left(Exception):
    pass


class _Module:
    def __init__(self, diff=False, **params):
        self.params = params
        self.check_mode = False
        self._diff = diff
        self.warned = []
        self.answer = {}

    def warn(self, warning):
        self.warned.append(warning)

    def exit_json(self, **result):
        self.answer = dict(result, failed=False)
        raise _Left

    def fail_json(self, msg, **result):
        self.answer = dict(result, msg=msg, failed=True)
        raise _Left


def _run(module, run):
    with pytest.raises(_Left):
        run_module(module, run)
    return module.answer


KEYS = {"changed", "findings", "plan", "found", "verified"}


def test_a_result_has_the_same_keys_whatever_happened():
    assert _run(_Module(), lambda *_: Result()).keys() - {"failed"} == KEYS


def test_a_failure_says_what_was_done_and_what_remains():
    def run(*_args):
        raise Failure("driver: no", Result(changed=True), done=["a"], remaining=["b"])

    answer = _run(_Module(), run)
    assert answer["failed"]
    assert answer["changed"]
    assert (answer["msg"], answer["done"], answer["remaining"]) == ("driver: no", ["a"], ["b"])
    assert answer.keys() - {"failed", "msg", "done", "remaining"} == KEYS


@pytest.mark.parametrize("error", [KubeError("the API server does not answer"), MissingPackage("Traceback")])
def test_trouble_with_the_connection_is_a_sentence_with_the_same_keys(error):
    def run(*_args):
        raise error

    answer = _run(_Module(), run)
    assert str(error) in answer["msg"]
    assert answer.keys() >= KEYS


def test_warnings_are_shown_and_errors_are_not_repeated_as_warnings():
    findings = [Finding("a", "warning", "careful"), Finding("b", "info", "fyi"), Finding("c", "error", "no")]
    module = _Module()
    _run(module, lambda *_: Result(findings=findings))
    assert module.warned == ["careful"]


def test_the_diff_is_there_on_demand_only_and_hides_secrets():
    secret = {"kind": "Secret", "data": {"key": "c2VjcmV0"}}
    plan = [Action("create Secret a/b", "create", "Secret a/b", "does not exist", after=secret)]
    assert "diff" not in _run(_Module(), lambda *_: Result(plan=plan))
    answer = _run(_Module(diff=True), lambda *_: Result(plan=plan))
    assert answer["diff"][0]["before"] == ""
    assert "c2VjcmV0" not in str(answer)
    assert "(redacted)" in answer["diff"][0]["after"]


def test_progress_is_one_line_a_call_in_a_file_that_exists(tmp_path):
    path = tmp_path / "lines"
    path.touch()
    show = progress_to(str(path))
    show("driver: 1/2\nnodes")
    show("ready")
    assert path.read_text() == "driver: 1/2 nodes\nready\n"


def test_progress_is_never_written_through_a_link(tmp_path):
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="link"):
        progress_to(str(tmp_path / "link"))


def test_progress_that_belongs_to_another_user_is_left_out(tmp_path, monkeypatch):
    def refuses(*_arguments):
        raise PermissionError

    file = tmp_path / "progress"
    file.touch()
    monkeypatch.setattr("os.open", refuses)
    progress_to(str(file))("a line")
    monkeypatch.undo()
    assert file.read_text() == ""
