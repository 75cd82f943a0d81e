// What a user of no-kafka wrote; its Produce is of version 1.

const Kafka = require("no-kafka");

const [command, address, topic, ...rest] = process.argv.slice(2);
const CODECS = { none: Kafka.COMPRESSION_NONE, gzip: Kafka.COMPRESSION_GZIP };
const common = { connectionString: address, logger: { logLevel: 1 } };
const say = (what) => console.log(JSON.stringify(what));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

const commands = {
  async produce(codec) {
    const producer = new Kafka.Producer({ ...common, codec: CODECS[codec] });
    await producer.init();
    const messages = [["k0", "v0"], [null, "v1"], ["k2", "v2"], ["k5", "x".repeat(5000)]];
    const sent = messages.map(([key, value]) => ({ topic, partition: 0, message: { key, value } }));
    for (const one of await producer.send(sent)) if (one.error) throw one.error;
    await producer.end();
    say({ done: true });
  },

  async read(count) {
    const consumer = new Kafka.SimpleConsumer(common);
    await consumer.init();
    let taken = 0;
    await new Promise((resolve) => {
      consumer.subscribe(topic, 0, { time: Kafka.EARLIEST_OFFSET }, (messages) => {
        for (const { offset, message } of messages) {
          if (taken < Number(count)) say({ offset, key: text(message.key), value: text(message.value) });
          if (++taken === Number(count)) resolve();
        }
      });
    });
    await consumer.end();
  },

  async commit(group, offset) {
    const consumer = new Kafka.SimpleConsumer({ ...common, groupId: group });
    await consumer.init();
    const [found] = await consumer.commitOffset([{ topic, partition: 0, offset: Number(offset), metadata: "" }]);
    if (found.error) throw found.error;
    say({ done: true });
  },

  async committed(group) {
    const consumer = new Kafka.SimpleConsumer({ ...common, groupId: group });
    await consumer.init();
    const [found] = await consumer.fetchOffset([{ topic, partition: 0 }]);
    say({ offset: found.offset });
  },
};

commands[command](...rest).then(() => process.exit(0), (error) => { console.error("Error: " + error); process.exit(1); });
