# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each gate fails on a planted fault, for the reason of that fault.

The faults are planted in a small collection with this one's own settings. That a gate passes on what has no fault is
shown by the collection itself, which passes all of them in the same `make test`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.gates import fragment, place, run, stages

SETTINGS = (
    ".ansible-lint",
    ".gitignore",
    "CHANGELOG.rst",
    "LICENSE",
    "changelogs/config.yaml",
    "galaxy.yml",
    "meta/ee-requirements.txt",
    "meta/execution-environment.yml",
    "pyproject.toml",
    "tests/config.yml",
    "tests/gates/fragment.py",
)
HEADER = """\
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
MODULE = (
    "#!/usr/bin/python\n"
    + HEADER
    + '''
from __future__ import annotations

DOCUMENTATION = r"""
module: probe
short_description: Answer what was asked
version_added: 0.1.0
description:
  - Answers O(word).
author:
  - gpufleet.nvidia contributors (@gpufleet)
options:
  word:
    description: What to answer.
    type: str
"""

EXAMPLES = r"""
- name: Ask
  gpufleet.nvidia.probe:
    word: hello
"""

RETURN = r"""
word:
  description: What was asked.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(argument_spec={"word": {"type": "str"}}, supports_check_mode=True)
    module.exit_json(changed=False, word=module.params["word"])


if __name__ == "__main__":
    main()
'''
)
FILES = {
    "README.md": "# A collection to plant faults in\n",
    "changelogs/fragments/1-first.yml": "---\nrelease_summary: The first.\n",
    "meta/runtime.yml": '---\nrequires_ansible: ">=2.18.0"\n',
    "playbooks/site.yml": (
        "---\n- name: Ask\n  hosts: localhost\n  gather_facts: false\n  roles:\n    - role: gpufleet.nvidia.asker\n"
    ),
    "plugins/modules/probe.py": MODULE,
    "plugins/module_utils/_words.py": f'{HEADER}"""Words."""\n',
    "roles/asker/meta/main.yml": (
        "---\ngalaxy_info:\n  author: gpufleet.nvidia contributors\n  description: Asks\n  license: GPL-3.0-or-later\n"
        '  min_ansible_version: "2.18"\n  platforms:\n    - name: GenericLinux\n      versions:\n        - all\n'
        "dependencies: []\n"
    ),
    "roles/asker/README.md": "# asker\n",
    "roles/asker/tasks/main.yml": "---\n- name: Ask\n  gpufleet.nvidia.probe:\n    word: hello\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A collection without fault, committed."""
    root = tmp_path / "checkout"
    for name in SETTINGS:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place.CHECKOUT / name, target)
    for name, text in FILES.items():
        write(root, name, text)
    git(root, "init", "-q")
    commit(root)
    return root


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    place.prepare_tools()


@pytest.fixture
def judged(checkout: Path, tmp_path: Path) -> Callable[[str], run.Outcome]:
    """Runs the gate of this name on the checkout as it is now."""

    def judge(name: str) -> run.Outcome:
        with place.place_for(checkout, tmp_path / "place") as prepared:
            return run.judge(next(gate for gate in run.GATES if gate.name == name), prepared)

    return judge


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a change")


UTIL = "plugins/module_utils/_words.py"
# Gate, file, its text with the fault (None: it is gone), and words of the complaint.
FAULTS = {
    "format": ("format", UTIL, f'{HEADER}"""Words."""\n\nWORDS = {{ "a":1 }}\n', "_words.py"),
    "ruff: unused import": ("ruff", UTIL, f'{HEADER}"""Words."""\n\nimport os\n', "F401"),
    "ruff: too complex": (
        "ruff",
        UTIL,
        f'{HEADER}"""Words."""\n\n\ndef tangle(x):\n'
        + "".join(f"    if x == {n}:\n        x += 1\n" for n in range(12)),
        "C901",
    ),
    "types": ("types", UTIL, f'{HEADER}"""Words."""\n\n\ndef same(word):\n    return word\n', "no-untyped-def"),
    "types: newer than 3.9": (
        "types",
        UTIL,
        f'{HEADER}"""Words."""\n\n\ndef pairs(a: list[int]) -> object:\n    return zip(a, a, strict=True)\n',
        'No overload variant of "zip"',
    ),
    "changelog: unknown section": (
        "changelog",
        "changelogs/fragments/2-second.yml",
        "---\nnovelties:\n  - A thing.\n",
        "novelties",
    ),
    "environment": ("environment", "meta/execution-environment.yml", "---\nversion: 1\n", "its output says"),
    "docs": (
        "docs",
        "plugins/modules/probe.py",
        MODULE.replace("O(word)", "O(sentence)"),
        "sentence",
    ),
    "ansible-lint": (
        "ansible-lint",
        "roles/asker/tasks/main.yml",
        "---\n- name: Ask\n  ansible.builtin.shell: echo hello\n",
        "no-changed-when",
    ),
    "galaxy: no README": ("galaxy", "README.md", None, "there is no README.md"),
    "galaxy: a role without README": ("galaxy", "roles/asker/README.md", None, "No role readme found"),
}
SLOW = ("galaxy: a role without README",)


@pytest.mark.parametrize("fault", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in FAULTS])
def test_a_gate_fails_on_a_planted_fault_and_names_it(checkout: Path, judged, fault: str) -> None:
    name, file, text, words = FAULTS[fault]
    if text is None:
        (checkout / file).unlink()
    else:
        write(checkout, file, text)
    outcome = judged(name)
    assert outcome.why, f"the gate {name} passed: {outcome.output}"
    assert words in outcome.output + outcome.why


@pytest.mark.long
def test_sanity_finds_what_is_not_documented_and_what_is_newer_than_the_oldest_python(checkout: Path, judged) -> None:
    write(checkout, "plugins/modules/probe.py", MODULE.replace('={"word":', '={"hidden": {"type": "int"}, "word":'))
    write(
        checkout,
        UTIL,
        f'{HEADER}"""Words."""\n\nimport kubernetes\n\nmatch kubernetes:\n    case None:\n        pass\n',
    )
    outcome = judged("sanity")
    assert outcome.why
    assert "undocumented-parameter" in outcome.output or "hidden" in outcome.output
    oldest = place.FLOOR if place.FLOOR in place.interpreters() else "3.11"
    assert f"compile --python {place.FLOOR}" in outcome.output or oldest != place.FLOOR
    assert f"import --python {oldest}" in judged("imports").output


def test_sanity_that_looked_at_nothing_has_failed(checkout: Path, tmp_path: Path) -> None:
    sanity = next(gate for gate in run.GATES if gate.name == "sanity")
    skipping = replace(sanity, commands=((sys.executable, "-c", "print('WARNING: All targets skipped.')"),))
    with place.place_for(checkout, tmp_path / "place") as prepared:
        assert "All targets skipped" in run.judge(skipping, prepared).why


def test_a_gate_with_nothing_to_judge_has_failed(checkout: Path, judged) -> None:
    (checkout / "plugins/modules/probe.py").unlink()
    assert judged("sanity").why == "there is no plugins/modules/*.py"


def test_a_change_without_a_fragment_is_found_and_one_released_is_not(checkout: Path, capsys) -> None:
    assert fragment.main(checkout) == 0
    (checkout / "changelogs/fragments/1-first.yml").unlink()
    commit(checkout)
    assert fragment.main(checkout) == 1
    assert "No change-log fragment" in capsys.readouterr().out
    git(checkout, "tag", "v0.1.0")
    assert fragment.main(checkout) == 0
    write(checkout, "README.md", "# Words for people only\n")
    commit(checkout)
    assert fragment.main(checkout) == 0
    write(checkout, "roles/asker/tasks/main.yml", "---\n")
    commit(checkout)
    assert fragment.main(checkout) == 1


def test_a_file_that_git_ignores_is_not_judged_and_one_that_is_gone_does_not_linger(
    checkout: Path, tmp_path: Path
) -> None:
    write(checkout, "build/left.py", "x=1")
    write(checkout, "plugins/module_utils/_new/_deep.py", "x = 1\n")
    with place.place_for(checkout, tmp_path / "place") as prepared:
        assert (prepared.tree / "plugins/module_utils/_new/_deep.py").exists()
        assert not (prepared.tree / "build").exists()
    shutil.rmtree(checkout / "plugins/module_utils/_new")
    with place.place_for(checkout, tmp_path / "place") as prepared:
        assert not (prepared.tree / "plugins/module_utils/_new").exists()
        assert (prepared.tree / UTIL).read_text(encoding="utf-8") == FILES[UTIL]


def test_a_failed_stage_fails_the_run_and_the_others_still_run(monkeypatch, capfd) -> None:
    chosen = tuple(
        stages.Stage(name, name, (sys.executable, "-c", f"import sys; print('ran {name}'); sys.exit({status})"))
        for name, status in (("first", 3), ("second", 0))
    )
    monkeypatch.setattr(stages, "STAGES", chosen)
    assert stages.main([]) == 1
    assert stages.main(["second"]) == 0
    out = capfd.readouterr().out
    assert "ran second" in out
    assert "1 stages passed, 1 failed" in out
