# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU feature discovery (ST-10): labels that say what GPUs a node has, handed to NFD (DP-06)."""

from __future__ import annotations

from dataclasses import replace
from typing import List

from .._policy._model import Policy
from . import _build as b
from . import _hidden
from ._device_plugin import READ_NODES, add_config_manager, plugin_configs
from ._types import ClusterFacts, Object, Operand

NAME = "gpu-feature-discovery"
ACCOUNT = "nvidia-gpu-feature-discovery"
_FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    configs = plugin_configs(policy, facts)
    waiting, run_nvidia = b.wait_for_toolkit(policy)
    # Discovery and plugin must see the same MIG strategy and config: what is set for discovery alone is void.
    ours = {item["name"] for item in b.mig_env(policy)}
    if policy.device_plugin.config.name:
        ours.add("CONFIG_FILE")
    main = b.main_container(
        NAME,
        replace(policy.gfd, env=tuple(item for item in policy.gfd.env if item["name"] not in ours)),
        command=["gpu-feature-discovery"],
        environment=[
            b.env("GFD_SLEEP_INTERVAL", "60s"),
            b.env("GFD_FAIL_ON_INIT_ERROR", "true"),
            b.env_from_field("NAMESPACE", "metadata.namespace"),
            b.NODE_NAME,
            b.env_from_field("POD_NAME", "metadata.name"),
            *b.mig_env(policy),
        ],
        mounts=[b.mount("output-dir", _FEATURES), b.mount("host-sys", "/sys", read_only=True)],
    )
    if facts.hidden:
        _hidden.start(main, "gpu-feature-discovery")
    pod = b.Pod(
        name=NAME,
        deploy="gpu-feature-discovery",
        account=ACCOUNT,
        containers=[main],
        init=[waiting],
        volumes=[
            b.host_path("output-dir", _FEATURES),
            b.host_path("host-sys", "/sys"),
            run_nvidia,
            *_hidden.volumes(facts),
        ],
        labels={"app.kubernetes.io/part-of": "nvidia-gpu"},
        images=(policy.validator.image, policy.gfd.image),
        host_network=policy.gfd.host_network,
        gpu_container=NAME,
        own_configs=[*configs, *_hidden.objects(facts)],
    )
    add_config_manager(pod, policy, "gpu-feature-discovery", policy.gfd.resources)
    role = [
        b.USE_PRIVILEGED_SCC,
        b.rule("nfd.k8s-sigs.io", "nodefeatures", "get list watch create update"),
        b.rule("", "pods", "get"),
    ]
    # Its named configs come with the device plugin, unless that one is not wanted.
    own = [] if policy.device_plugin.enabled else configs
    return [*b.rbac(ACCOUNT, facts.namespace, role, [READ_NODES]), *own, *b.daemonset(pod, policy, facts)]


OPERAND = Operand(
    name="gpu-feature-discovery",
    title="GPU feature discovery",
    enabled=lambda policy: policy.gfd.enabled,
    build=build,
    deploy_label=b.DEPLOY + "gpu-feature-discovery",
)
