// What a user of kafkajs writes, with its default settings; see ../README.md.

import kafkajs from "kafkajs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs;
const Lz4 = require("kafkajs-lz4");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = new Lz4().codec;
CompressionCodecs[CompressionTypes.ZSTD] = require("@kafkajs/zstd")();

const { None: none, GZIP: gzip, Snappy: snappy, LZ4: lz4, ZSTD: zstd } = CompressionTypes;
const CODECS = { none, gzip, snappy, lz4, zstd };
const [command, address, topic, ...rest] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING });
const say = (what) => console.log(JSON.stringify(what));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

function record(partition, message) {
  const headers = [];
  for (const [name, values] of Object.entries(message.headers ?? {})) {
    for (const value of [values].flat()) headers.push([name, text(value)]);
  }
  const { key, value, offset } = message;
  say({ partition, offset: Number(offset), key: text(key), value: text(value), headers });
}

const commands = {
  async produce(codec) {
    const producer = kafka.producer();
    await producer.connect();
    const messages = [
      { key: "k0", value: "v0" },
      { key: null, value: "v1" },
      { key: "k2", value: null },
      { key: "", value: "" },
      { key: "k4", value: "v4", headers: { a: ["1", "2"], b: "" } },
      { key: "k5", value: "x".repeat(5000) },
    ].map((one) => ({ ...one, partition: 0 }));
    await producer.send({ topic, messages, compression: CODECS[codec] });
    await producer.disconnect();
    say({ done: true });
  },

  async read(count) {
    const consumer = kafka.consumer({ groupId: `reads-${Date.now()}` });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    let taken = 0;
    await new Promise((resolve) => {
      const eachMessage = async ({ partition, message }) => {
        record(partition, message);
        if (++taken === Number(count)) resolve();
      };
      consumer.run({ eachMessage });
    });
    await consumer.disconnect();
  },

  async member(group) {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 1000 });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      say({ assigned: payload.memberAssignment[topic] ?? [] });
    });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const eachMessage = async ({ partition, message }) => {
      record(partition, message);
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }]);
      say({ committed: true });
    };
    await consumer.run({ autoCommit: false, eachMessage });
  },

  async transact() {
    const producer = kafka.producer({ transactionalId: "t", idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "v" }] });
    await transaction.commit();
  },

  async admin() {
    const admin = kafka.admin();
    await admin.connect();
    const check = (holds, what) => {
      if (!holds) throw new Error(what);
    };
    const configEntries = [{ name: "retention.ms", value: "100000" }];
    await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] });
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    check(topics[0].partitions.length === 2, "two partitions");
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    const resource = { type: 2, name: topic };
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "200000" }] }] });
    const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] });
    check(described.resources[0].configEntries[0].configValue === "200000", "the setting");
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "0" }] });
    await admin.listGroups();
    check((await admin.describeCluster()).brokers.length >= 1, "brokers");
    await admin.deleteTopics({ topics: [topic] });
    check(!(await admin.listTopics()).includes(topic), "deleted");
    await admin.disconnect();
    say({ done: true });
  },
};

await commands[command](...rest);
if (command !== "member") process.exit(0);
