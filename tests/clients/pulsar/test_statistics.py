"""What Pulsar's admin API shows of clients that are connected."""

import json
import urllib.request

import pytest

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = pytest.mark.clients

ABOUT = {"team": "billing"}
MODE = pulsar.ProducerAccessMode.WaitForExclusive


def stats(broker, topic):
    url = f"http://{broker.addresses['http']}/admin/v2/{topic}/stats"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_producers_and_consumers_are_shown_with_their_clients(broker, client, topic, kind):
    place = f"{kind}/public/default/{topic}"
    full = place.replace("/", "://", 1)
    consumer = client.subscribe(full, "s", consumer_name="reader", properties=ABOUT)
    first = client.create_producer(full, producer_name="first", properties=ABOUT, access_mode=MODE)
    found = stats(broker, place)
    (shown,) = found["publishers"]
    assert (shown["producerName"], shown["accessMode"]) == ("first", "WaitForExclusive")
    (read_by,) = found["subscriptions"]["s"]["consumers"]
    assert read_by["consumerName"] == "reader"
    for one in (shown, read_by):
        assert one["metadata"] == ABOUT
        assert one["address"].startswith("/127.0.0.1:")
        assert one["clientVersion"].startswith("Pulsar-CPP-v")
        assert one["connectedSince"].endswith("Z")
    first.close()
    consumer.close()
    assert stats(broker, place)["publishers"] == []
