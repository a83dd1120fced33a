# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_driver finds and plans on a machine with a real driver, for branches of today; it only reads.

Run ``python3 tests/real/nvidia_driver_truth.py [FOLDER]`` from the checkout there, as root. With a folder the answers
are written into it (``nvidia_driver.json``). It ends with 1 where a run ends in anything but a plan or a refusal.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

PARAMS: dict[str, Any] = {
    "state": "present", "branch": None, "version": None, "flavour": "auto", "source": "auto", "repository": None,
    "use": "compute", "companions": ["auto"], "kernel": None, "apply": "now", "accept": [], "parameters": None,
    "hold": True, "matrix": None, "mok_password": None, "root": "/",
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "branch 595": {"branch": 595},
    "branch 595, in place of what the image brought": {"branch": 595, "accept": ["driver_of_image", "compiler"]},
    "branch 595 at the next boot": {"branch": 595, "apply": "next_boot"},
    "branch 620, proprietary": {"branch": 620, "flavour": "proprietary"},
    "absent": {"state": "absent"},
}


def main() -> int:
    from gpu_info_truth import link_collection  # beside this file, before the collection can be imported

    link_collection()
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._run import Tools, nvidia_driver
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

    answers: dict[str, Any] = {}
    for name, more in RUNS.items():
        start = time.monotonic()
        try:
            answers[name] = nvidia_driver({**PARAMS, **more}, True, lambda line: None, Tools()).as_dict()
        except Failure as failure:
            answers[name] = failure.as_dict()
        print(f"== {name}: {time.monotonic() - start:.2f} s. {answers[name].get('msg', '')}")
        for finding in answers[name]["findings"]:
            print(f"  {finding['severity']} {finding['id']} {finding['target']} {finding['detail']}")
        for action in answers[name]["plan"]:
            print(f"  {action['verb']} {action['target']}: {action['reason']}")
    for folder in sys.argv[1:2]:
        text = json.dumps(answers, indent=1, sort_keys=True) + "\n"
        (Path(folder) / "nvidia_driver.json").write_text(text, encoding="utf-8")
    return 0 if all(answer["findings"] or answer["plan"] or not answer["changed"] for answer in answers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
