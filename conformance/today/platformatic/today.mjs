// What a user of @platformatic/kafka writes: it has no version of the protocol in common with the broker.

import { Producer, stringSerializers } from "@platformatic/kafka";

const [, address, topic] = process.argv.slice(2);
const producer = new Producer({ clientId: "today", bootstrapBrokers: [address], serializers: stringSerializers });
await producer.send({ messages: [{ topic, key: "k", value: "v" }] });
await producer.close();
