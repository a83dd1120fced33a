# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import REDACTED, Finding, redacted


@pytest.mark.parametrize("name", ["API_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "AWS_ACCESS_KEY"])
def test_the_value_of_an_environment_variable_with_a_secrets_name_is_hidden(name):
    whole = {"containers": [{"env": [{"name": name, "value": "hunter2"}, {"name": "MIG_STRATEGY", "value": "single"}]}]}
    assert redacted(whole)["containers"][0]["env"] == [
        {"name": name, "value": REDACTED},
        {"name": "MIG_STRATEGY", "value": "single"},
    ]
    path = f"spec.template.spec.containers[a].env[{name}].value"
    assert redacted({path: "hunter2"}) == {path: REDACTED}


def test_the_content_of_a_secret_is_hidden_and_its_keys_are_not():
    secret = {"kind": "Secret", "metadata": {"name": "a"}, "data": {"key": "aHVudGVyMg=="}}
    assert redacted(secret) == {**secret, "data": {"key": REDACTED}}


def test_names_of_secrets_and_switches_stay():
    spec = {"automountServiceAccountToken": False, "envFrom": [{"secretRef": {"name": "licence"}}]}
    assert redacted(spec) == spec


@pytest.mark.parametrize(
    ("detail", "said"),
    [("is missing", "a: is missing. Add it."), ("is missing.", "a: is missing. Add it.")],
)
def test_a_finding_reads_as_sentences(detail, said):
    assert Finding("x", "error", detail, path="a", remedy="Add it.").sentence() == said
