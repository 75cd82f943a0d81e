// What a user of @platformatic/kafka writes, with its default settings; see ../README.md.

import { Admin, Consumer, Producer } from "@platformatic/kafka";

const [command, address, topic, ...rest] = process.argv.slice(2);
const base = { clientId: "today", bootstrapBrokers: [address] };
const say = (what) => console.log(JSON.stringify(what));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const bytes = (value) => (value === null ? null : Buffer.from(value));

function record({ partition, offset, key, value, headers }) {
  const pairs = [...headers].map(([name, one]) => [name.toString(), text(one)]);
  say({ partition, offset: Number(offset), key: text(key), value: text(value), headers: pairs });
}

async function follow(groupId, options, use) {
  const consumer = new Consumer({ ...base, groupId, ...options });
  const tell = () => {
    const mine = (consumer.assignments ?? []).filter((one) => one.topic === topic);
    say({ assigned: mine.flatMap((one) => one.partitions) });
  };
  consumer.on("consumer:group:join", tell);
  // A member of the consumer protocol gets its partitions by heartbeats.
  if (options.groupProtocol === "consumer") consumer.on("consumer:heartbeat:end", tell);
  const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: false });
  for await (const message of stream) if (await use(message)) break;
  await stream.close();
  await consumer.close();
}

const commands = {
  async produce(codec) {
    const producer = new Producer(base);
    const messages = [
      ["k0", "v0"],
      [null, "v1"],
      ["k2", null],
      ["", ""],
      ["k4", "v4", [["a", "1"], ["a", "2"], ["b", ""]]],
      ["k5", "x".repeat(5000)],
    ].map(([key, value, headers = []]) => ({
      topic,
      partition: 0,
      key: bytes(key),
      value: bytes(value),
      headers: new Map(headers.map(([name, one]) => [bytes(name), bytes(one)])),
    }));
    await producer.send({ messages, compression: codec });
    await producer.close();
    say({ done: true });
  },

  async read(count) {
    let taken = 0;
    await follow(`reads-${Date.now()}`, {}, (message) => {
      record(message);
      return ++taken === Number(count);
    });
  },

  async member(group, options = { sessionTimeout: 6000, heartbeatInterval: 1000 }) {
    await follow(group, options, async (message) => {
      record(message);
      await message.commit();
      say({ committed: true });
    });
  },

  async modern(group) {
    await commands.member(group, { groupProtocol: "consumer" });
  },

  async transact() {
    const producer = new Producer({ ...base, transactionalId: "t", idempotent: true });
    const transaction = await producer.beginTransaction();
    await transaction.send({ messages: [{ topic, value: Buffer.from("v") }] });
    await transaction.commit();
  },

  async admin() {
    const admin = new Admin(base);
    const check = (holds, what) => {
      if (!holds) throw new Error(what);
    };
    const resource = { resourceType: 2, resourceName: topic };
    const made = await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1, configs: [{ name: "retention.ms", value: "100000" }] });
    check(made[0].partitions === 2, "two partitions");
    await admin.createPartitions({ topics: [{ name: topic, count: 3, assignments: null }] });
    const configs = [{ name: "retention.ms", configOperation: 0, value: "200000" }];
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }] });
    const [described] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ["retention.ms"] }] });
    check(described.configs[0].value === "200000", "the setting");
    await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 0n }] }] });
    await admin.listGroups({});
    await admin.describeClientQuotas({ components: [{ entityType: "user", matchType: 2, match: null }] });
    const offsets = { groupId: `g-${topic}`, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 0n }] }] };
    await admin.alterConsumerGroupOffsets(offsets);
    await admin.deleteConsumerGroupOffsets({ groupId: offsets.groupId, topics: [{ name: topic, partitionIndexes: [0] }] });
    await admin.deleteTopics({ topics: [topic] });
    check(!(await admin.listTopics({})).includes(topic), "deleted");
    await admin.close();
    say({ done: true });
  },
};

await commands[command](...rest);
if (command !== "member") process.exit(0);
