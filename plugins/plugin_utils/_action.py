# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What action plugins of cluster modules share: files are read here, and progress is shown while a module works."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ._files import BadFile, read_policy

display = Display()


class ClusterAction(ActionBase):
    """Runs the module of the same name. ``reads_policy``: it takes ``policy_files``."""

    TRANSFERS_FILES = False
    reads_policy = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        task_vars = task_vars or {}
        result: Dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if self.reads_policy:
            args["policy_documents"] = [self._policy(name) for name in self._policy_files(args)]
        if self._connection.transport != "local":
            result.update(self._execute_module(module_args=args, task_vars=task_vars))
            return result
        with _Progress(str(task_vars.get("inventory_hostname", "localhost"))) as progress:
            args["progress_file"] = progress.path
            result.update(self._execute_module(module_args=args, task_vars=task_vars))
        return result

    def _policy_files(self, args: Dict[str, Any]) -> list:
        files = args.get("policy_files") or []
        return [files] if isinstance(files, str) else list(files)

    def _policy(self, name: str) -> Dict[str, Any]:
        try:
            # Decrypted where it is a vault.
            return read_policy(self._loader.get_real_file(self._found(os.path.expanduser(str(name)))))
        except (AnsibleError, BadFile) as error:
            text = str(error).strip().rstrip(".")
            raise AnsibleActionFail(f"policy_files: {text}. Nothing has been changed.") from None

    def _found(self, name: str) -> str:
        """The file as typed, from where Ansible was started, or beside the role or the playbook."""
        if os.path.isfile(name):
            return os.path.abspath(name)
        try:
            found: str = self._find_needle("files", name)
        except AnsibleError:
            beside = self._loader.get_basedir()
            raise BadFile(f"{name}: is neither in {os.getcwd()} nor beside the playbook ({beside})") from None
        return found


class _Progress:
    """Shows the lines that a module appends to a file, as they come."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> _Progress:
        handle, self.path = tempfile.mkstemp(prefix="gpufleet-progress-")
        os.close(handle)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join(timeout=5)
        os.unlink(self.path)

    def _follow(self) -> None:
        with open(self.path, encoding="utf-8", errors="replace") as stream:
            while True:
                last = self._over.wait(0.3)
                for line in stream:
                    display.display(f"  {self._host}: {line.rstrip()}")
                if last:
                    return
