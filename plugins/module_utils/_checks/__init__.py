# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of a cluster before and beside a run, without changing it.

``_preflight`` reads a ``World`` once (``_read``) and has each check judge it; ``_explain`` says why a pod does not run;
``_quota`` and ``_images`` answer for the modules of these names. A check is one file: a pure function from a World to
findings, and one line of the table in ``_preflight``.
"""
