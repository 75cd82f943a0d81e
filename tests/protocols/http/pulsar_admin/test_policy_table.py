"""A row of the topic settings with a name of Pulsar is a policy, without further code."""

import enum

import pytest

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import Limit, Switch, TopicSetting
from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.http.pulsar_admin.policies import Policy, read_value
from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES


class Mode(enum.Enum):
    """A choice."""

    EAGER = "eager"
    LAZY = "lazy"


def row(hint):
    return TopicSetting("producers_max", hint, None, "", pulsar="maxProducers")


def test_every_policy_of_a_row_is_served_once():
    named = {setting.pulsar for setting in TOPIC_SETTINGS.values()} - {""}
    assert sorted(policy.path for policy in POLICIES) == sorted(named)


@pytest.mark.parametrize(
    ("hint", "body", "value"),
    [
        (Limit, 5, 5),
        (Switch, False, False),
        (Mode, "LAZY", "lazy"),
        (Mode, "UNDEFINED", None),
    ],
)
def test_a_value_is_read_by_the_annotation(hint, body, value):
    assert read_value(row(hint), body) == value


@pytest.mark.parametrize(
    ("hint", "body"), [(Limit, -1), (Limit, True), (Limit, None), (Switch, 1), (Mode, "lazy")]
)
def test_a_body_that_is_no_value_is_refused(hint, body):
    with pytest.raises(RequestRefused):
        read_value(row(hint), body)


@pytest.mark.parametrize(
    ("path", "settings", "shown"),
    [
        ("deduplication", {"deduplication": True}, True),
        ("deduplication", {}, None),
        ("schemaCompatibilityStrategy", {"schema_compatibility": "full"}, "FULL"),
        ("schemaCompatibilityStrategy", {}, None),
    ],
)
def test_a_value_is_shown_by_the_annotation(path, settings, shown):
    assert Policy(path).shown(settings) == shown
