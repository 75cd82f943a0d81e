import pytest

from braidlog.protocols.http.limits import MESSAGE_IDS_MAX
from tests.broker.positions.replaced import GROUP, replace_meanwhile, two_partitions
from tests.protocols.http.pip64.conftest import BASE

CURSOR = f"{BASE}/subscription/billing/cursor"


@pytest.fixture
async def billing(broker, orders, ask):
    """Return a subscription at the start of partition 1, which has five messages;
    never set in 0.
    """
    body = {"messages": [{"value": n} for n in range(5)]}
    answer = await ask("POST", f"{BASE}/partitions/1", body)
    subscription = broker.subscriptions.open(orders, b"billing")
    subscription.start(1, 0)
    subscription.ids = [result["messageId"] for result in answer.json["messageIds"]]
    return subscription


def partition_1(answer):
    assert answer.status == 200, answer.body
    return answer.json["cursor"]["partitions"][1]


async def test_the_shape_of_a_cursor(billing, ask):
    ids = [billing.ids[0], billing.ids[2]]
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": ids})
    answer = await ask("GET", CURSOR)
    assert answer.json == {
        "cursor": {
            "subscription": "billing",
            "type": None,
            "durable": True,
            "consumers": [],
            "unacked": 0,
            "backlog": 3,
            "partitions": [
                {
                    "partition": 0,
                    "mark_delete": None,
                    "read_position": "CAEQABgA",
                    "individually_acked": [],
                    "backlog": 0,
                    "log_end_offset": 0,
                },
                {
                    "partition": 1,
                    "mark_delete": "CAIQABgB",
                    "read_position": "CAIQAxgB",
                    "individually_acked": [[2, 2]],
                    "backlog": 3,
                    "log_end_offset": 5,
                },
            ],
        }
    }


@pytest.mark.parametrize("path", ["subscription", "subscriptions"])
@pytest.mark.parametrize("base", [BASE, "/topics/persistent/public/default/orders"])
async def test_every_spelling_of_the_path(billing, ask, base, path):
    answer = await ask("GET", f"{base}/{path}/billing/cursor")
    assert answer.json["cursor"]["backlog"] == 5


async def test_cumulative_takes_the_highest_id_of_each_partition(billing, ask):
    ids = [billing.ids[3], billing.ids[1]]
    answer = await ask("POST", CURSOR, {"type": "cumulative", "messageIds": ids})
    assert partition_1(answer)["mark_delete"] == billing.ids[3]
    assert billing.position(1) == 4
    answer = await ask("POST", CURSOR, {"type": "CUMULATIVE", "message_ids": billing.ids[:1]})
    assert billing.position(1) == 4  # Never back.


async def test_an_acknowledged_message_can_be_acknowledged_again(billing, ask):
    for _ in range(2):
        body = {"type": "Individual", "messageIds": billing.ids[:2]}
        assert (await ask("POST", CURSOR, body)).status == 200
    assert billing.position(1) == 2


async def test_a_missing_subscription_is_not_found(orders, ask):
    assert (await ask("GET", CURSOR)).json["error_code"] == 40404
    body = {"type": "Seek", "position": "earliest"}
    assert (await ask("POST", CURSOR, body)).json["error_code"] == 40404


async def test_an_acknowledgement_on_an_unset_cursor_starts_at_the_beginning(billing, ask):
    body = {"messages": [{"value": 1}, {"value": 2}]}
    answer = await ask("POST", f"{BASE}/partitions/0", body)
    second = answer.json["messageIds"][1]["messageId"]
    assert billing.position(0) is None
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": [second]})
    assert billing.position(0) == 0
    assert list(billing.acked(0)) == [(1, 2)]


@pytest.mark.parametrize(
    ("seek", "position"),
    [
        ({"position": "earliest"}, 0),
        ({"position": "Latest"}, 5),
        ({"timestamp": 0}, 0),
        ({"timestamp": "1795228435965"}, 5),
        ({"messageIds": ["CAIQAxgB"]}, 3),
    ],
)
async def test_seek_moves_and_forgets(billing, ask, seek, position):
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": billing.ids[1:3]})
    answer = await ask("POST", CURSOR, {"type": "Seek", **seek})
    assert answer.status == 200, answer.body
    assert billing.position(1) == position
    assert partition_1(answer)["individually_acked"] == []


async def test_a_change_is_on_disk_before_the_answer(broker, billing, ask):
    await ask("POST", CURSOR, {"type": "Individual", "messageIds": billing.ids})
    assert broker.durability.durable_ticket >= broker.durability.ticket - 1
    assert billing.backlog(1) == 0


GOOD = "CAIQABgB"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 40001),
        ({}, 42206),
        ({"type": "Some", "messageIds": [GOOD]}, 42206),
        ({"type": 5, "messageIds": [GOOD]}, 42206),
        ({"type": "Individual"}, 42205),
        ({"type": "Individual", "messageIds": []}, 42205),
        ({"type": "Individual", "messageIds": GOOD}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, None]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, "rubbish"]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, "CAIQCRgB"]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, "CAIQARgC"]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, "CAIQAQ=="]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD, "CAkQARgB"]}, 42205),
        ({"type": "Individual", "messageIds": [GOOD] * (MESSAGE_IDS_MAX + 1)}, 42205),
        ({"type": "Cumulative", "messageIds": [GOOD, "CAIQCRgB"]}, 42205),
        ({"type": "Negative", "messageIds": []}, 42205),
        ({"type": "Seek"}, 42205),
        ({"type": "Seek", "position": "middle"}, 42205),
        ({"type": "Seek", "position": "latest", "timestamp": 1}, 42205),
        ({"type": "Seek", "timestamp": -1}, 42205),
        ({"type": "Seek", "timestamp": "now"}, 42205),
        ({"type": "Seek", "messageIds": [GOOD, GOOD]}, 42205),
    ],
)
async def test_a_single_fault_prevents_every_change(billing, ask, body, code):
    answer = await ask("POST", CURSOR, body)
    assert answer.json["error_code"] == code, answer.body
    assert billing.position(1) == 0 and not billing.acked(1)


async def test_other_protocols_see_the_same_position(broker, billing, ask):
    await ask("POST", CURSOR, {"type": "Cumulative", "messageIds": [billing.ids[1]]})
    assert billing.committed(1).offset == 2  # A Kafka group reads this back.
    billing.commit(1, 4)  # Kafka commits 4, or Iggy stores 3.
    answer = await ask("GET", CURSOR)
    assert partition_1(answer)["mark_delete"] == billing.ids[3]
    assert partition_1(answer)["backlog"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Seek", "timestamp": 2_000_000_000_000},
        {"type": "Individual", "messageIds": ["CAIQAhgB"]},
        {"type": "Cumulative", "messageIds": ["CAIQAhgB"]},
    ],
    ids=["seek", "individual", "cumulative"],
)
async def test_a_change_does_not_affect_a_new_partition_of_the_same_number(broker, ask, change):
    """The new partition has other records, which would count as acknowledged."""
    topic = await two_partitions(broker)

    async def update():
        answer = await ask("POST", "/topics/public/default/t/subscription/billing/cursor", change)
        assert answer.status == 404, answer.body

    await replace_meanwhile(broker, topic, update)
    subscription = broker.subscriptions.get(topic, GROUP)
    assert subscription.position(1) == 0
    assert not subscription.acked(1)
