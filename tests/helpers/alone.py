# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that has one way to the GPUs alone, the cluster's API or SSH. Who takes the other one is found out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import COLLECTIONS


class Controller:
    """Runs playbooks in an environment of its own. ``tried`` has a line for each step onto the way that is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tried = folder / "tried"
        self.tried.write_text("")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            "HOME": str(folder),  # no ~/.kube/config, no ~/.ssh
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_NOCOLOR": "1",
        }

    def without_ssh(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("ssh", "scp", "sftp"):
            (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{self.tried}\nexit 255\n')
            (programs / name).chmod(0o755)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"

    def without_cluster(self) -> None:
        """Python finds packages that nobody may import: ours and kubernetes.core's go to an API server with them."""
        library = self.folder / "lib"
        library.mkdir()
        for name in ("kubernetes", "urllib3"):
            text = f"open({str(self.tried)!r}, 'a').write('{name}\\n')\nraise RuntimeError('there is no cluster')\n"
            (library / f"{name}.py").write_text(text)
        self.environment["PYTHONPATH"] = f"{library}:{self.environment.get('PYTHONPATH', '')}"

    def play(self, inventory: Path, playbook: str | Path, **variables: Any) -> str:
        """What a playbook says that ends well."""
        command = [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, playbook]
        done = subprocess.run(
            [*command, "-e", json.dumps(variables)],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.tried.read_text() == ""
        return done.stdout
