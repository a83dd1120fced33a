# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MPS control daemon (ST-07): runs where the node's device-plugin config shares GPUs by MPS (DP-03)."""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from . import _hidden
from ._device_plugin import ACCOUNT, READ_NODES, add_config_manager, mps_volumes, plugin_configs
from ._images import pull_policy, reference
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-device-plugin-mps-control-daemon"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The pod runs as the device plugin's account; its own is made because the operator makes it too."""
    plugin = policy.device_plugin
    image, pull = reference(plugin.image), pull_policy(plugin.image)
    waiting, run_nvidia = b.wait_for_toolkit(policy)
    mounts = b.container(
        "mps-control-daemon-mounts",
        image,
        pull,
        command=["mps-control-daemon", "mount-shm"],
        mounts=[b.mount("mps-root", "/mps", propagation="Bidirectional")],
        resources=plugin.resources,
    )
    # The plugin's own env and args are not the daemon's.
    main = b.container(
        "mps-control-daemon-ctr",
        image,
        pull,
        command=["mps-control-daemon"],
        environment=[
            b.NODE_NAME,
            b.env("NVIDIA_VISIBLE_DEVICES", "all"),
            b.env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
            *b.mig_env(policy),
        ],
        mounts=[b.mount("mps-shm", "/dev/shm"), b.mount("mps-root", "/mps")],
        resources=plugin.resources,
    )
    if facts.hidden:
        _hidden.start(main, "mps-control-daemon")
    pod = b.Pod(
        name=NAME,
        deploy="device-plugin",
        account=ACCOUNT,
        containers=[main],
        init=[waiting, mounts],
        volumes=[run_nvidia, *mps_volumes(policy), *_hidden.volumes(facts)],
        annotations={"openshift.io/scc": "hostmount-anyuid"},
        node_selector={"nvidia.com/mps.capable": "true"},
        spec={"hostPID": True},
        images=(policy.validator.image, plugin.image),
        host_network=plugin.host_network,
        gpu_container="mps-control-daemon-ctr",
        own_configs=[*plugin_configs(policy, facts), *_hidden.objects(facts)],
    )
    add_config_manager(pod, policy, "/usr/bin/mps-control-daemon", plugin.resources)
    rbac = b.rbac(NAME, facts.namespace, [b.USE_PRIVILEGED_SCC], [READ_NODES])
    return [*rbac, *b.daemonset(pod, policy, facts)]


OPERAND = Operand(
    name="state-mps-control-daemon",
    title="MPS control daemon",
    enabled=lambda policy: policy.device_plugin.enabled,
    build=build,
    deploy_label=b.DEPLOY + "device-plugin",
)
