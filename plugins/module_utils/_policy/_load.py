# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entrance of the policy package: plain data in any of its forms -> typed policy, and every problem at once."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._matrix import RELEASES, release_named
from .._plan import ERROR, Finding, errors
from ._build import build
from ._model import Policy
from ._read import check, resolve
from ._tree import plain


def load(
    source: Mapping[str, Any], *, kind: str = "auto", set_strings: Sequence[str] = (), release: str = ""
) -> Tuple[Optional[Policy], List[Finding]]:
    """The policy that ``source`` describes, and findings. The policy is None when a finding has severity "error"."""
    name = release_named(release)
    if name is None:
        known = ", ".join(sorted(RELEASES))
        return None, [Finding("policy.release", ERROR, f"The release {release} is not known.", path="release", remedy=f"Known: {known}.")]
    tree, findings = plain(source)
    if findings:
        return None, findings
    form = "values"
    findings = check(tree, form, name)
    if errors(findings):
        return None, findings
    policy, more = build(resolve(tree, form, name), name)
    findings.extend(more)
    return (None if errors(findings) else policy), findings
