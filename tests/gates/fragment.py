# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fails when users get a change that no change-log fragment tells them of.

A release is a tag ``vX.Y.Z``; releasing uses the fragments up. Since the last one (or since the beginning), a change in
what users run wants at least one fragment.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USERS_RUN = ("plugins", "roles", "playbooks", "meta", "extensions")


def git(checkout: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def changed_for_users(checkout: Path) -> list[str]:
    """Files that users run and that differ from the last release; all of them when there was none."""
    release = git(checkout, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    if release:
        return git(checkout, "diff", "--name-only", release, "--", *USERS_RUN).splitlines()
    return git(checkout, "ls-files", "--", *USERS_RUN).splitlines()


def main(checkout: Path) -> int:
    changed = changed_for_users(checkout)
    fragments = sorted((checkout / "changelogs/fragments").glob("*.y*ml"))
    if changed and not fragments:
        print(
            f"No change-log fragment, but {len(changed)} files that users run changed since the last release:"
            f" {changed[0]} for one."
        )
        print("Add changelogs/fragments/NUMBER-WORDS.yml, with the section that fits from changelogs/config.yaml.")
        return 1
    print(f"{len(changed)} changed files that users run, {len(fragments)} fragments")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
