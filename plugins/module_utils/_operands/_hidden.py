# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that node groups keep out of Kubernetes (P099): the list, and the pods that heed it before their program starts.

Nothing of this is in any object while no group hides a GPU.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from .._nodes._hidden import from_text, to_text
from .._policy._model import Json
from . import _build as b
from ._scripts import HIDE_GPUS
from ._types import ClusterFacts, Object

NAME = "nvidia-hidden-gpus"
LIST = "list"
_FOLDER = "/hidden-gpus"
HIDE = f"sh {_FOLDER}/hide.sh {_FOLDER}/{LIST}"


def objects(facts: ClusterFacts) -> List[Object]:
    """The ConfigMap with the list and the script; none while nothing is hidden."""
    if not facts.hidden:
        return []
    return [b.config_map(NAME, facts.namespace, {LIST: to_text(facts.hidden), "hide.sh": HIDE_GPUS}, {"app": NAME})]


def start(container: Json, program: str, args: Sequence[str] = ()) -> None:
    """Have a container hide GPUs, then become the program, with its own arguments or with ``args``.

    All that decides stands in the pod's template: a new pod never starts by an older script. A container that is a
    shell already hides them before what it was to do.
    """
    if container.get("command") == ["/bin/sh", "-c"]:
        text, *rest = container["args"]
        last = text if " " in text else f"exec {text}"
        _wrap(container, f"{HIDE} || exit 1\n{last}\n", *(rest or [program]))
        return
    _wrap(container, f'{HIDE} || exit 1\nexec {program} "$@"\n', program, *(container.get("args") or args))


def start_exporter(container: Json) -> None:
    """The exporter's image has a shell and may lack rm: it is told which GPUs to watch instead.

    A choice of devices in the user's args or env wins. The image's own entrypoint is in one of two folders.
    """
    script = f"""\
PATH="$PATH:/usr/local/dcgm"
devices="$({HIDE} indices)" || exit 1
if [ -n "$devices" ]; then
  export DCGM_EXPORTER_DEVICES_STR="${{DCGM_EXPORTER_DEVICES_STR:-g:$devices}}"
fi
exec dcgm-exporter-entrypoint.sh "$@"
"""
    _wrap(container, script, "dcgm-exporter", *(container.get("args") or ()))


def _wrap(container: Json, script: str, *args: str) -> None:
    """Run the script, with the list, itself and the node's name, by which it reads the list."""
    container["command"], container["args"] = ["/bin/sh", "-c"], [script, *args]
    container["volumeMounts"] = [*container.get("volumeMounts", []), b.mount(NAME, _FOLDER, read_only=True)]
    if all(item["name"] != "NODE_NAME" for item in container.get("env", [])):
        container["env"] = [*container.get("env", []), b.NODE_NAME]


def volumes(facts: ClusterFacts) -> List[Json]:
    return [b.config_volume(NAME, NAME)] if facts.hidden else []


def reads(workload: Object) -> bool:
    """Whether pods of a DaemonSet heed the list."""
    return f"ConfigMap/{NAME}" in b.configs_read(workload["spec"]["template"]["spec"])


def of_config(config: Optional[Object]) -> Dict[str, Tuple[str, ...]]:
    """The list of a ConfigMap in the cluster; {} without one."""
    return from_text(((config or {}).get("data") or {}).get(LIST) or "")
