# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA toolkit on GPU nodes, for pods that mount it (S35). The operator has nothing like it.

An init container copies the toolkit of NVIDIA's CUDA image into a folder of the host, one for each version, beside
which the link ``current`` names the one that the policy asks for. The copy gets its name when it is whole,
and is never touched again: pods may have it mounted.
"""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from ._images import pull_policy, reference
from ._types import ClusterFacts, Object, Operand

NAME = "gpufleet-cuda-toolkit"
INSIDE = "/host-cuda"
COPY = f"""\
set -e
target={INSIDE}/$TOOLKIT_VERSION
if [ ! -d "$target" ]; then
  rm -rf "$target.partial"
  mkdir -p "$target.partial"
  cp -a /usr/local/cuda/. "$target.partial/"
  mv "$target.partial" "$target"
fi
ln -sfn "$TOOLKIT_VERSION" {INSIDE}/current
"""


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    toolkit = policy.cuda_toolkit
    image, pull = reference(toolkit.image), pull_policy(toolkit.image)
    mounts = [b.mount("cuda", INSIDE)]
    copy = b.container(
        "cuda-toolkit-copy",
        image,
        pull,
        command=["sh", "-c"],
        args=[COPY],
        environment=[b.env("TOOLKIT_VERSION", toolkit.cuda), b.env("NVIDIA_VISIBLE_DEVICES", "void")],
        mounts=mounts,
        security=b.AS_ROOT,
        resources=toolkit.resources,
    )
    stay = b.container(
        "cuda-toolkit-ctr",
        image,
        pull,
        command=["sleep", "infinity"],
        environment=[b.env("NVIDIA_VISIBLE_DEVICES", "void")],
        mounts=[b.mount("cuda", INSIDE, read_only=True)],
        security={"allowPrivilegeEscalation": False},
        resources=toolkit.resources,
    )
    pod = b.Pod(
        name=NAME,
        # A node that serves GPUs at all has this label, also where the container toolkit is the host's.
        deploy="container-toolkit",
        account=NAME,
        containers=[stay],
        init=[copy],
        volumes=[b.host_path("cuda", toolkit.install_dir, "DirectoryOrCreate")],
        images=(toolkit.image,),
        spec={"automountServiceAccountToken": False},
    )
    return [*b.rbac(NAME, facts.namespace, [b.USE_PRIVILEGED_SCC]), *b.daemonset(pod, policy, facts)]


OPERAND = Operand(
    name="cuda-toolkit",
    title="CUDA toolkit",
    enabled=lambda policy: policy.cuda_toolkit.enabled,
    build=build,
    deploy_label=b.DEPLOY + "container-toolkit",
)
