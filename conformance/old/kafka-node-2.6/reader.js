// The high-level consumer of kafka-node 2: `reader.js ZOOKEEPER TOPIC GROUP COUNT`.

const kafka = require("kafka-node");

const [zookeeper, topic, groupId, count] = process.argv.slice(2);
const client = new kafka.Client(zookeeper, "old");
const consumer = new kafka.HighLevelConsumer(client, [{ topic }], {
  groupId,
  autoCommit: false,
  fromOffset: false,
});
const lines = [];

consumer.on("error", (error) => {
  console.error("Error: " + error);
  process.exit(1);
});
consumer.on("message", ({ value }) => {
  if (lines.length >= Number(count)) return;
  lines.push(value);
  if (lines.length < Number(count)) return;
  // true: commit at once, and leave the group.
  consumer.close(true, () => {
    for (const line of lines) console.log(line);
    process.exit(0);
  });
});
