"""A valid body for each policy of Pulsar's admin API, from the tables of policies and settings."""

from __future__ import annotations

from typing import Any, Final

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import TopicSetting
from braidlog.protocols.http.pulsar_admin.policies import Policy

NUMBER: Final = 7
DISPATCH_RATE: Final = {
    "dispatchThrottlingRateInMsg": 1000,
    "dispatchThrottlingRateInByte": 1_000_000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
# Policies with a form of their own.
BODIES: Final = {
    "subscriptionAuthMode": "Prefix",
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 2,
    },
    "backlogQuota": {
        "limitSize": 1 << 30,
        "limit": 1 << 30,
        "limitTime": -1,
        "policy": "producer_exception",
    },
    "dispatchRate": DISPATCH_RATE,
    "isAllowAutoUpdateSchema": False,  # True is what holds without the policy.
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 0.0,
    },
    "retention": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100},
    "schemaCompatibilityStrategy": "FULL",
    "subscriptionDispatchRate": DISPATCH_RATE,
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
}


def policy_body(policy: Policy) -> Any:
    """Return a body that sets a policy."""
    if policy.path in BODIES:
        return BODIES[policy.path]
    if policy.fields:
        return {field.name: _value(TOPIC_SETTINGS[field.setting]) for field in policy.fields}
    return _value(policy.settings[0])


def _value(setting: TopicSetting) -> str | int | bool:
    if setting.is_switch:
        return True
    return setting.choices[0] if setting.choices else NUMBER
