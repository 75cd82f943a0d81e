"""Descriptions of clusters: created, replaced, deleted, within limits, and over restarts."""

import pytest

from braidlog.broker import errors
from braidlog.broker.limits import StateLimits
from braidlog.broker.topics.described_clusters import CLUSTER_BYTES_MAX
from tests.broker.metadata_fakes import MetadataParts

EU = {"serviceUrl": "http://eu:8080", "peers": ["us"], "tls": True}


async def test_descriptions_survive_a_restart():
    house = MetadataParts()
    clusters = house.namespaces.clusters
    await clusters.create("eu", EU)
    await clusters.create("us", {})
    await clusters.create("gone", EU)
    await clusters.alter("us", {"serviceUrl": "http://us:8080"})
    await clusters.delete("gone")
    for known in (clusters, house.restarted().namespaces.clusters):
        assert known.names() == ["eu", "us"]
        assert known.find("eu") == EU
        assert known.find("us") == {"serviceUrl": "http://us:8080"}
        assert known.find("gone") is None


async def test_a_description_is_created_once_and_replaced_while_it_exists():
    clusters = MetadataParts().namespaces.clusters
    await clusters.create("eu", EU)
    with pytest.raises(errors.NamespaceExists):
        await clusters.create("eu", EU)
    for change in (clusters.alter("us", EU), clusters.delete("us")):
        with pytest.raises(errors.NamespaceNotFound):
            await change


async def test_limits_of_descriptions():
    house = MetadataParts(limits=StateLimits(described_clusters=2))
    clusters = house.namespaces.clusters
    largest = "x" * (CLUSTER_BYTES_MAX - len("euurl") - 1)
    await clusters.create("eu", {"url": largest})
    before = house.tickets
    too_large = (
        clusters.create("us", {"url": largest + "y"}),
        clusters.alter("eu", {"url": largest + "y"}),
        clusters.create("us", {"peers": ["y"] * (CLUSTER_BYTES_MAX // 2)}),
    )
    for change in too_large:
        with pytest.raises(errors.InvalidRequest, match=f"expected at most {CLUSTER_BYTES_MAX}"):
            await change
    assert house.tickets == before
    await clusters.create("us", {})
    with pytest.raises(errors.LimitExceeded):
        await clusters.create("asia", {})
    await clusters.delete("us")
    await clusters.create("asia", {})
