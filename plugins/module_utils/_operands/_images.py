# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image strings from the three keys of a policy, with the operating system's tag where an image is built for one."""

from __future__ import annotations

from .._policy._model import Image

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def reference(image: Image) -> str:
    """``repository/image:version``, or ``@version`` for a digest; ``image`` alone is used as it is (IMG-01).

    Raises ValueError when only some of the three are set.
    """
    if not image.repository and not image.version and image.image:
        return image.image
    if not (image.repository and image.image and image.version):
        raise ValueError(
            "an image needs repository, image and version, or image alone; found "
            f"repository={image.repository!r} image={image.image!r} version={image.version!r}"
        )
    separator = "@" if image.version.startswith("sha256:") else ":"
    return f"{image.repository}/{image.image}{separator}{image.version}"


def for_os(image: Image, os_tag: str) -> str:
    """The image built for an operating system: ``...:595.91.07-ubuntu24.04``; a digest already names one (IMG-02)."""
    plain = reference(image)
    return plain if "sha256:" in plain else f"{plain}-{os_tag}"


def precompiled(image: Image, kernel: str, os_tag: str) -> str:
    """The driver image built for one kernel: ``...:595-6.8.0-60-generic-ubuntu24.04`` (IMG-03)."""
    return f"{reference(image)}-{kernel}-{os_tag}"


def pull_policy(image: Image) -> str:
    """The policy as Kubernetes knows it; anything else means IfNotPresent (IMG-04)."""
    return image.pull_policy if image.pull_policy in PULL_POLICIES else "IfNotPresent"
