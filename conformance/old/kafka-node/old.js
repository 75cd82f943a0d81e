// What a user of kafka-node 5 wrote.

const kafka = require("kafka-node");

const [command, address, topic, ...rest] = process.argv.slice(2);
const CODECS = { none: 0, gzip: 1 };
const say = (what) => console.log(JSON.stringify(what));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));
const client = new kafka.KafkaClient({ kafkaHost: address });
const fail = (error) => { console.error("Error: " + error); process.exit(1); };
client.on("error", fail);

const commands = {
  produce(codec, done) {
    const producer = new kafka.Producer(client, { requireAcks: 1 });
    producer.on("error", fail);
    producer.on("ready", () => {
      const records = [["k0", "v0"], [null, "v1"], ["k2", "v2"], ["k5", "x".repeat(5000)]];
      const messages = records.map(([key, value]) => (key === null ? value : new kafka.KeyedMessage(key, value)));
      producer.send([{ topic, partition: 0, messages, attributes: CODECS[codec] }], (error) => {
        if (error) fail(error);
        say({ done: true });
        done();
      });
    });
  },

  read(count, done) {
    const options = { fromOffset: true, autoCommit: false, encoding: "buffer", keyEncoding: "buffer" };
    const consumer = new kafka.Consumer(client, [{ topic, partition: 0, offset: 0 }], options);
    let taken = 0;
    consumer.on("error", fail);
    consumer.on("message", ({ offset, key, value }) => {
      if (taken++ >= Number(count)) return;
      say({ offset, key: key && key.length ? text(key) : null, value: text(value) });
      if (taken === Number(count)) done();
    });
  },

  commit(group, offset, done) {
    client.once("ready", () => {
      const wanted = [{ topic, partition: 0, offset: Number(offset), metadata: "" }];
      new kafka.Offset(client).commit(group, wanted, (error) => {
        if (error) fail(error);
        say({ done: true });
        done();
      });
    });
  },

  committed(group, done) {
    client.once("ready", () => {
      new kafka.Offset(client).fetchCommits(group, [{ topic, partition: 0 }], (error, found) => {
        if (error) fail(error);
        say({ offset: found[topic][0] });
        done();
      });
    });
  },
};

commands[command](...rest, () => process.exit(0));
