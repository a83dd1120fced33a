# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and repositories of apt and rpm with NVIDIA's names, made here: tests ask no repository outside.

key = Key(folder)
apt = repository.apt(toolkit.packages({"nvidia-ctk": path}), folder / "deb", key)
rpm = repository.rpm(toolkit.packages({"nvidia-ctk": path}), folder / "rpm", key, host)
"""
