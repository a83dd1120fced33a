# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils._action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils._files import BadFile, read_documents


class ActionModule(ClusterAction):
    """Reads the files of layouts and hooks, and shows the progress of the module of this name."""

    reads_policy = False

    def run(self, tmp=None, task_vars=None):
        for file, content in (("config_file", "config"), ("hooks_file", "hooks")):
            name = self._task.args.get(file)
            if name and content not in self._task.args:
                args = dict(self._task.args, **{content: self._mapping(file, str(name))})
                del args[file]
                self._task.args = args
        return super().run(tmp, task_vars)

    def _mapping(self, option, name):
        try:
            file = self._loader.get_real_file(self._found(os.path.expanduser(name)))
            documents = read_documents(file, unique=True)
        except BadFile as error:
            raise AnsibleActionFail(f"{option}: {error}. Nothing has been changed.") from None
        if len(documents) > 1 or not all(isinstance(document, dict) for document in documents):
            raise AnsibleActionFail(f"{option}: {name} is not one mapping. Nothing has been changed.")
        return documents[0] if documents else {}
