"""InitProducerId: an id for a producer that sends sequences. Transactions are not served."""

from __future__ import annotations

import secrets

from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from braidlog.storage.formats.kafka.record_batches import PRODUCER_BIT

# Ids are drawn at random, so that no two brokers and no two starts give the same one.
ID_MIN = PRODUCER_BIT
NO_NUMBER = -1  # no producer id, no epoch


def init_producer_id(context: KafkaContext, request: InitProducerIdRequest) -> KafkaAnswer:
    """Give a producer an id of its own; refuse one with transactions for good."""
    code = _refusal(request)
    if code != Code.NONE:
        return KafkaAnswer(
            InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        )
    return KafkaAnswer(InitProducerIdResponse(producer_id=ID_MIN + secrets.randbelow(ID_MIN)))


def _refusal(request: InitProducerIdRequest) -> Code:
    """Return the code of a request that gets no id."""
    has_id, has_epoch = request.producer_id != NO_NUMBER, request.producer_epoch != NO_NUMBER
    if request.transactional_id == b"" or has_id != has_epoch:
        return Code.INVALID_REQUEST
    if request.transactional_id is not None:
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Code.NONE
