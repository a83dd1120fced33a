# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image references can be pulled, and the words of a pull that fails."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).with_name("registry.yaml")


@dataclass(frozen=True)
class Image:
    reference: str
    program: str
    version: str = ""
    system: str = ""  # of driver images: ubuntu24.04, rhel9
    kernel: str = ""  # of precompiled driver images


def split(reference: str) -> tuple[str, str]:
    """repository and tag (or ``sha256:..``) of a reference."""
    if "@" in reference:
        repository, digest = reference.split("@", 1)
        return repository, digest
    head, _unused, tail = reference.rpartition("/")
    name, _unused, tag = tail.partition(":")
    return (f"{head}/{name}" if head else name), tag or "latest"


@cache
def table() -> dict[str, Image]:
    images: dict[str, Image] = {}
    for row in yaml.safe_load(DATA.read_text())["images"]:
        for version in row["versions"]:
            for system in row.get("systems", [""]):
                tag = f"{version}-{system}" if system else version
                reference = f"{row['repository']}:{tag}"
                images[reference] = Image(reference, row["program"], version, system)
        kernels = row.get("kernels", {})
        for branch in kernels.get("branches", []):
            for tag in kernels.get("tags", []):
                kernel, _unused, system = tag.rpartition("-")
                reference = f"{row['repository']}:{branch}-{tag}"
                version = branch if "." in branch else next(v for v in row["versions"] if v.startswith(branch + "."))
                images[reference] = Image(reference, row["program"], version, system, kernel)
    return images


@cache
def _programs() -> dict[str, str]:
    """Last part of the repository -> program: how images of a mirror are told apart."""
    return {split(reference)[0].rsplit("/", 1)[-1]: image.program for reference, image in table().items()}


def program_of(reference: str) -> str:
    return _programs().get(split(reference)[0].rsplit("/", 1)[-1], "")


def find(reference: str, missing: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> Image | None:
    """The image behind a reference, or None where no registry has it. ``missing`` and ``extra`` are patterns."""
    if any(fnmatch.fnmatchcase(reference, pattern) for pattern in missing):
        return None
    known = table().get(reference)
    if known:
        return known
    if not any(fnmatch.fnmatchcase(reference, pattern) for pattern in extra):
        return None
    # A mirror: what is inside follows from the name and tag.
    program = program_of(reference)
    tag = split(reference)[1]
    for image in table().values():
        if image.program == program and split(image.reference)[1] == tag:
            return Image(reference, program, image.version, image.system, image.kernel)
    return Image(reference, program, tag if not tag.startswith("sha256:") else "")


def not_found(reference: str) -> str:
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{reference}": failed to resolve reference '
        f'"{reference}": {reference}: not found'
    )


def as_list(value: Any) -> tuple[str, ...]:
    return tuple(str(v) for v in value or ())
