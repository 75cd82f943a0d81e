"""The ZooKeeper listener fulfils the contract of all listeners, and checks its own options."""

import struct
from types import SimpleNamespace

import pytest

from braidlog.broker.config.settings import ConfigError, load
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.errors import WIRE_CODES
from braidlog.protocols.zookeeper.machine import ZooKeeperMachine
from braidlog.protocols.zookeeper.messages import Op
from braidlog.protocols.zookeeper.options import ZooKeeperOptions
from tests.protocols.contract import AdapterContract, AnsweredFrame
from tests.protocols.zookeeper.talk import OPEN, connect_frame, frame, request_frame


def answer(xid, code=0, body=b""):
    return frame(struct.pack(">iqi", xid, 0, code) + body)


CONNECTED = frame(struct.pack(">iiqi", 0, 8000, 0, 16) + bytes(16) + b"\0")


class TestZooKeeperContract(AdapterContract):
    protocol = "zookeeper"
    opening = 1
    exchanges = (
        AnsweredFrame(connect_frame(), [CONNECTED]),
        AnsweredFrame(
            request_frame(1, Op.CREATE, "/a", b"x", OPEN, 0),
            [answer(1, body=struct.pack(">i", 2) + b"/a")],
        ),
        AnsweredFrame(request_frame(2, Op.GET_DATA, "/none", False), [answer(2, -101)]),
        AnsweredFrame(request_frame(-2, Op.PING), [answer(-2)]),
        AnsweredFrame(request_frame(3, Op.DELETE, "/a", 0), [answer(3)]),
        AnsweredFrame(request_frame(4, Op.EXISTS, "/a", False), [answer(4, -101)]),
    )
    oversized = struct.pack(">i", 1 << 28)
    flood = request_frame(9, Op.GET_CHILDREN2, "/", False)
    wire_codes = WIRE_CODES

    def answer_size(self, data):
        return 4 + struct.unpack_from(">i", data)[0] if len(data) >= 4 else None

    def decode(self, data):
        machine = ZooKeeperMachine(1 << 20)
        while (size := machine.frame_size(data)) is not None and size <= len(data):
            whole = data[:size]
            if machine.is_connected:
                machine.decode(whole)
            else:
                machine.decode_first(whole)
            data = data[size:]

    def normal(self, frame):
        if len(frame) == len(CONNECTED):
            return frame[:12] + bytes(8) + frame[20:24] + bytes(17)
        zeros = bytes(8)
        return frame[:8] + zeros + frame[16:20] + frame[20 : len(frame)]


def config_of(*flags):
    return load(file="/dev/null", environment={}, flags=[(*flag, "test") for flag in flags])


@pytest.mark.parametrize("chroot", ["kafka", "/kafka/", "/", "/a//b"])
def test_a_chroot_is_a_path(chroot):
    ADAPTER.check(ZooKeeperOptions(chroot="/kafka/one"), loopback=True)
    with pytest.raises(ValueError, match="chroot"):
        ADAPTER.check(ZooKeeperOptions(chroot=chroot), loopback=True)


async def test_the_listener_needs_a_kafka_listener():
    alone = SimpleNamespace(is_alone=True)
    for flags in ([("listeners.kafka.listen", "off")], [("listeners.kafka.protocol", "http")]):
        broker = SimpleNamespace(placement=alone, config=config_of(*flags))
        with pytest.raises(ConfigError, match="not an open Kafka listener"):
            await ADAPTER.start(broker, ZooKeeperOptions(), loopback=True)


def test_the_description_is_a_command():
    text = ADAPTER.describe("127.0.0.1", 2181, ZooKeeperOptions(chroot="/kafka"))
    assert text == "kafka-topics.sh --zookeeper 127.0.0.1:2181/kafka --list"
