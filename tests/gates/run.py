# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates that every change passes: one small command each, in one table.

``run.py`` runs all that are not long, ``run.py NAME...`` some, ``run.py --list`` tells what each is for. A gate fails
when its command does, or when the output has words that mean it did not do its work.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.gates.place import (
    CHECKOUT,
    FLOOR,
    Place,
    interpreters,
    place_for,
    prepare_tools,
)

PYTHON = sys.executable
MODULE_UTILS = "ansible_collections.gpufleet.nvidia.plugins.module_utils"


# What pip and ansible-test say while all is well.
NOISE = re.compile(
    r"\s*(Collecting|Downloading|Installing|Using cached|Looking in|Processing|Requirement already|Attempting|"
    r"Found existing|Uninstalling|Successfully|Running sanity test|WARNING: (Using locale|Reviewing|Skipping)|━|$)"
)


@dataclass(frozen=True)
class Gate:
    """``commands`` run in ``folder`` in turn. {tree}, {root}, {scratch} and {source} are a Place's folders, {oldest}
    and {newest} the versions of Python found. A ``long`` gate runs when it is named, and in `make test-all`.
    """

    name: str
    what: str
    commands: tuple[tuple[str, ...], ...]
    folder: str = "{tree}"
    # Words in the output that mean failure although the command ended with 0.
    refuse: str = "(?!)"
    # Words in the output that a person should read in any case.
    tell: str = "(?!)"
    # Files of the tree without which there is nothing to judge.
    needs: tuple[str, ...] = ()
    long: bool = False


def sanity(name: str, what: str, *tests: tuple[str, ...], long: bool = False) -> Gate:
    """Part of ansible-test sanity; each of ``tests`` are the options of one call."""
    return Gate(
        name,
        what,
        tuple(("ansible-test", "sanity", "--color", "no", *test) for test in tests),
        refuse=r"All targets skipped|No tests applicable",
        tell=r"Skipping sanity test .* could not be found",
        needs=("plugins/modules/*.py",),
        long=long,
    )


GATES: tuple[Gate, ...] = (
    # What takes longest begins first, two at a time.
    sanity("pylint", "ansible-test sanity: pylint; no ignore files", ("--test", "pylint")),
    Gate(
        "ansible-lint",
        "ansible-lint, profile production, nothing skipped",
        (("ansible-lint", "--offline", "--strict", "--profile", "production"),),
        refuse=r"profile-not-found|\b0 files processed",
        needs=("roles/*/tasks/main.yml", "playbooks/*.yml"),
    ),
    sanity(
        "imports",
        "ansible-test sanity: plugins import on the oldest Python and on the newest",
        *(("--test", "import", "--python", version) for version in ("{oldest}", "{newest}")),
    ),
    sanity("all-imports", "the same on every Python found", ("--test", "import"), long=True),
    sanity(
        "sanity",
        "ansible-test sanity: all other tests, on every Python found; no ignore files",
        ("--skip-test", "import", "--skip-test", "pylint"),
    ),
    Gate("format", "ruff's formatting, 120 characters", (("ruff", "format", "--check", "."),)),
    Gate("ruff", "ruff's rules, complexity at most 10", (("ruff", "check", "."),)),
    Gate(
        "types",
        "mypy --strict on module_utils, for Python 3.9",
        (("mypy", "--config-file", "{tree}/pyproject.toml", "--cache-dir", "{scratch}/mypy", "-p", MODULE_UTILS),),
        folder="{root}",
    ),
    Gate(
        "changelog",
        "antsibull-changelog: fragments are well formed, and a change since the last release has one",
        (
            ("antsibull-changelog", "lint"),
            (PYTHON, "{tree}/tests/gates/fragment.py", "{source}"),
        ),
    ),
    Gate(
        "environment",
        "ansible-builder reads what an execution environment must install",
        (("ansible-builder", "introspect", "{root}"),),
        refuse=r"(?s)\A(?!.*kubernetes.*from collection gpufleet\.nvidia)",
    ),
    Gate(
        "docs",
        "antsibull-docs: documentation of modules and roles, with its references",
        (("antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=self", "{tree}"),),
        needs=("plugins/modules/*.py",),
    ),
    Gate(
        "galaxy",
        "the artifact builds, and galaxy-importer has no word against it",
        (
            ("ansible-galaxy", "collection", "build", "--force", "--output-path", "{scratch}/artifact", "{tree}"),
            (PYTHON, "-m", "galaxy_importer.main", "{scratch}/artifact/gpufleet-nvidia-{version}.tar.gz"),
        ),
        folder="{scratch}",
        refuse=r"(?m)WARNING|ERROR",
        needs=("README.md",),
    ),
)


@dataclass
class Outcome:
    """What a gate came to; ``why`` is empty when it passed."""

    name: str
    seconds: float
    output: str
    why: str = ""
    notes: list[str] = field(default_factory=list)


def judge(gate: Gate, place: Place) -> Outcome:
    """Run one gate in its place."""
    start = time.monotonic()
    output, why = "", ""
    missing = [pattern for pattern in gate.needs if not any(place.tree.glob(pattern))]
    if missing:
        why = f"there is no {missing[0]}"
    for command in gate.commands if not why else ():
        status, text = execute(command, gate, place)
        output += text
        if status:
            why = f"{Path(command[0]).name} ended with {status}"
            break
    refused = re.search(gate.refuse, output)
    if refused and not why:
        why = f"its output says: {line_around(output, refused.start())}"
    notes = sorted(set(re.findall(gate.tell, output)))
    return Outcome(gate.name, time.monotonic() - start, output, why, notes)


def execute(command: tuple[str, ...], gate: Gate, place: Place) -> tuple[int, str]:
    versions = list(interpreters()) or [f"{sys.version_info.major}.{sys.version_info.minor}"]
    names = {
        "tree": str(place.tree),
        "root": str(place.root),
        "scratch": str(place.scratch),
        "source": str(place.source),
        "version": version_of(place.tree),
        "oldest": versions[0],
        "newest": versions[-1],
    }
    ran = subprocess.run(
        [part.format(**names) for part in command],
        cwd=gate.folder.format(**names),
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


def version_of(tree: Path) -> str:
    found = re.search(r"(?m)^version: *(\S+)", (tree / "galaxy.yml").read_text(encoding="utf-8"))
    return found.group(1) if found else "unknown"


def line_around(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 :].split("\n", 1)[0].strip()


def report(outcome: Outcome) -> None:
    print(
        f"{'ok  ' if not outcome.why else 'FAIL'} {outcome.name:<13} {outcome.seconds:6.1f} s  {outcome.why}",
        flush=True,
    )
    if outcome.why and outcome.output:
        lines = [line for line in outcome.output.rstrip().splitlines() if not NOISE.match(line)]
        print("".join(f"     | {line}\n" for line in lines[-80:]), flush=True)
    for note in outcome.notes:
        print(f"     note: {note}", flush=True)


def select(names: list[str]) -> list[Gate]:
    known = {gate.name: gate for gate in GATES}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"There is no gate {unknown[0]!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] if names else [gate for gate in GATES if not gate.long]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the gates (all, or those named).")
    parser.add_argument("gates", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="tell what each gate is for")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="the checkout to judge (default: this one)")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{gate.name:<13} {gate.what}{' (long)' * gate.long}" for gate in GATES))
        return 0
    gates = select(options.gates)
    pythons = prepare_tools()
    with place_for(options.checkout.resolve()) as place:
        shutil.rmtree(place.scratch / "artifact", ignore_errors=True)
        outcomes = []
        # Two at a time: each is mostly one process, and the machines that this is for have two cores.
        with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
            for judged in as_completed([pool.submit(judge, gate, place) for gate in gates]):
                outcomes.append(judged.result())
                report(outcomes[-1])
    failed = [outcome.name for outcome in outcomes if outcome.why]
    if FLOOR not in pythons:
        print(
            f"NOTE: no Python {FLOOR} on this machine: nothing here shows that plugins work on it."
            " Install one and run again."
        )
    print(
        f"{len(outcomes) - len(failed)} gates passed, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
