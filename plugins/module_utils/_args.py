# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that the cluster modules share, as argument specs; ``doc_fragments/cluster.py`` documents them."""

from __future__ import annotations

from typing import Any, Dict

Spec = Dict[str, Dict[str, Any]]

CONNECTION: Spec = {
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
    "host": {"type": "str"},
    "api_key": {"type": "str", "no_log": True},
    "ca_cert": {"type": "path"},
    "client_cert": {"type": "path"},
    "client_key": {"type": "path"},
    "validate_certs": {"type": "bool", "default": True},
    "proxy": {"type": "str"},
    "request_timeout": {"type": "int", "default": 30},
}

POLICY: Spec = {
    "policy": {"type": "dict"},
    "policy_files": {"type": "list", "elements": "path"},
    "policy_documents": {"type": "list", "elements": "dict"},
    "set_values": {"type": "list", "elements": "str"},
    "release": {"type": "str"},
    "accept": {"type": "list", "elements": "str"},
    "namespace": {"type": "str", "default": "gpu-operator"},
    "image_registry": {"type": "str"},
}

WAIT: Spec = {
    "wait": {"type": "bool", "default": True},
    "stage_timeout": {"type": "int", "default": 1800},
    "timeout": {"type": "int", "default": 7200},
    "lock_wait": {"type": "int", "default": 120},
    "if_locked": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "progress_file": {"type": "path"},
}

DRIFT: Spec = {"drift": {"type": "str", "choices": ["correct", "report"], "default": "correct"}}

NODE_GROUPS: Spec = {"node_groups": {"type": "list", "elements": "dict"}}


def spec(*parts: Spec, **more: Dict[str, Any]) -> Spec:
    """One argument spec from several; later ones win."""
    merged: Spec = {}
    for part in parts:
        merged.update(part)
    merged.update(more)
    return merged
