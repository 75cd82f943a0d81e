"""Sample bodies of Pulsar's policies."""

import pytest
from starlette.requests import Request

from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES
from conformance.policy_samples import policy_body


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.path)
def test_each_policy_takes_its_sample(policy):
    body = policy_body(policy)
    query = f"{policy.topic_query}={body}" if policy.topic_query else ""
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    changes = policy.changes(body, request)
    assert changes and None not in changes.values()
