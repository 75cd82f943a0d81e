"""Calls of tools that read statistics, with the types that their sources name."""

from pathlib import Path

import pytest

from tests.protocols.http.pulsar_admin.test_admin import ADMIN, PARTS, TOPIC

MANAGER = Path(__file__).with_name("pulsar_manager.txt")

# KEDA, `pkg/scalers/pulsar_scaler.go`: Go refuses a number with a point for these fields.
TOPIC_INTEGERS = ("bytesInCounter", "msgInCounter", "bytesOutCounter", "msgOutCounter")
TOPIC_INTEGERS += ("storageSize", "backlogSize")
INTEGERS = ("bytesOutCounter", "msgOutCounter", "msgBacklog", "msgBacklogNoDelayed", "msgDelayed")
INTEGERS += ("unackedMessages", "lastExpireTimestamp", "lastConsumedFlowTimestamp")
INTEGERS += ("lastConsumedTimestamp", "lastAckedTimestamp")
SWITCHES = ("blockedSubscriptionOnUnackedMsgs", "isDurable", "isReplicated")
TOPIC_FIELDS = {"publishers": list, "replication": dict, "deduplicationStatus": str}
FIELDS = {"type": str, "consumers": list, "consumersAfterMarkDeletePosition": dict}


@pytest.mark.parametrize(
    ("path", "topic"), [(f"{TOPIC}/stats", "orders"), (f"{PARTS}/partitioned-stats", "parts")]
)
async def test_keda_reads_a_backlog(ask, path, topic):
    of_topic = path.rpartition("/")[0]
    if topic == "parts":
        await ask("PUT", f"{of_topic}/partitions", 2, 204)
    else:
        await ask("PUT", of_topic, status=204)
    await ask("PUT", f"{of_topic}/subscription/s", "earliest", 204)
    body = {"schema_type": "STRING", "messages": [{"value": "1"}, {"value": "2"}]}
    await ask("POST", f"/topics/public/default/{topic}", body, 200)
    stats = (await ask("GET", path, status=200)).json
    shown = stats["subscriptions"]["s"]
    assert shown["msgBacklog"] == 2
    for fields, integers, others in (
        (stats, TOPIC_INTEGERS, TOPIC_FIELDS),
        (shown, INTEGERS, FIELDS),
    ):
        assert {name: type(fields[name]) for name in integers} == dict.fromkeys(integers, int)
        assert {name: type(fields[name]) for name in others} == others
    assert {type(shown[name]) for name in SWITCHES} == {bool}
    assert type(stats["msgChunkPublished"]) is bool


def calls_of_pulsar_manager():
    """Return whether each call is served, by method and path."""
    calls, group = {}, ""
    for line in MANAGER.read_text().splitlines():
        if line.startswith("  "):
            calls[line.strip()] = group == "served"
        elif line and not line.startswith("#"):
            group = line
    return calls


async def test_calls_of_pulsar_manager_are_served_or_refused_as_listed(ask):
    """Without bodies: a served call with a body is refused with another status."""
    await ask("PUT", TOPIC, status=204)
    served = {}
    for call in calls_of_pulsar_manager():
        method, path = call.split(" ")
        answer = await ask(method, f"{ADMIN}{path}", headers={"Host": "h:8080"})
        assert answer.status < 500 or answer.status == 501, (call, answer.body)
        served[call] = answer.status != 501
    assert served == calls_of_pulsar_manager()
