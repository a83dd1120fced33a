# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the driver with NVIDIA's names, versions and relations, made here; the kernel module is ten lines of C.

repository.apt(debs.nvidia_debian(["580.95.05", "590.48.01"]), folder / "debian12/x86_64", key)
repository.rpm(rpms.enterprise(["580.95.05"]), folder / "rhel9/x86_64", key, host, rpms.modules(["580.95.05"]))

Names and relations are those of the specification, and no more of them: nothing of NVIDIA's is in these packages.
"""
