# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes over plain JSON: one kept-alive connection, no generated models, no discovery, no client-side merge.

====================  ====================================================================================
``_connection``       requests with retries and a deadline, counted
``_credentials``      server, TLS and credentials: plain ones read here, others by the ``kubernetes`` package
``_pool``             urllib3 as the transport
``_resources``        kind -> path of every kind that the collection touches
``_lists``            lists in pages, also of metadata only
``_watch``            the live state of several lists at once
``_quantities``       equality of values as Kubernetes sees it
``_equal``            what differs between a wanted object and a live one, and who owns the difference
``_apply``            plan (create, update, replace, prune) and its execution
``_nodes_patch``      the smallest patch for labels, annotations and taints of a node
``_wait``             is a workload ready, and if not, which pod on which node is in the way, and why
====================  ====================================================================================

Nothing in here knows of GPUs. Nothing is exported from here: import from the file that has it.
"""
