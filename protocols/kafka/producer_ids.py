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


def init_producer_id(context: KafkaContext, request: InitProducerIdRequest) -> KafkaAnswer:
    """Give a producer an id of its own; refuse one with transactions for good."""
    if request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return KafkaAnswer(
            InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        )
    return KafkaAnswer(InitProducerIdResponse(producer_id=ID_MIN + secrets.randbelow(ID_MIN)))
