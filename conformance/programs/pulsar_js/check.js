// What pulsar-flex, Pulsar's client in JavaScript alone, does step by step; a line each. Argument: HOST:PORT of Pulsar's
// listener. It always subscribes from the latest message on, and has no seek, no reader, no schemas, no delays, no chunks and no patterns; it cannot write keys.
const { Producer, Consumer } = require('pulsar-flex');

const discoveryServers = [process.argv[2]];
const base = 'persistent://public/default/js-';
const quiet = { logCreator: () => () => {} };
const { SHARED } = Producer.ACCESS_MODES;
const { EXCLUSIVE, FAILOVER, SHARED: BY_TURNS, KEY_SHARED } = Consumer.SUB_TYPES;
let failed = false;

function check(holds, what) {
  if (!holds) throw new Error(what);
}

async function step(name, work) {
  const begun = Date.now();
  try {
    let timer;
    const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error('no end within 20 s')), 20000)));
    await Promise.race([work(), late]);
    clearTimeout(timer);
    console.log(`ok ${name} ${Date.now() - begun} ms`);
  } catch (error) {
    failed = true;
    console.log(`FAILED ${name}: ${error.message}`);
  }
}

async function producer(topic, producerAccessMode = SHARED) {
  const made = new Producer({ topic, discoveryServers, producerAccessMode, ...quiet });
  await made.create();
  return made;
}

async function consumer(topic, subType, consumerName = 'c', more = {}) {
  const made = new Consumer({
    topic, discoveryServers, subscription: 's', subType, consumerName, receiveQueueSize: 100, ...quiet, ...more,
  });
  await made.subscribe();
  return made;
}

// Resolves when `take(message)` says so; a fault in it ends the step.
function consume(made, take, autoAck = false) {
  return new Promise((resolve, reject) => {
    const onMessage = async (message) => {
      try {
        if (await take(message)) resolve();
      } catch (error) {
        reject(error);
      }
    };
    made.run({ onMessage, autoAck }).catch(reject);
  });
}

function sendAll(made, count) {
  const messages = [...Array(count).keys()].map((i) => ({ payload: `${i}`, properties: { n: `${i}` } }));
  return made.sendBatch({ messages });
}

async function singles() {
  const c = await consumer(`${base}e`, EXCLUSIVE);
  const p = await producer(`${base}e`);
  for (let i = 0; i < 20; i++) await p.sendMessage({ payload: `${i}`, properties: { n: `${i}` } });
  let next = 0;
  await consume(c, async ({ message, properties, ack }) => {
    check(message.toString() === `${next}` && properties.n === `${next}`, `order at ${next}`);
    await ack();
    return ++next === 20;
  });
  let refused = false;
  await consumer(`${base}e`, EXCLUSIVE, 'd').catch(() => (refused = true));
  check(refused, 'a second exclusive consumer');
  await c.unsubscribe();
  await p.close();
}

async function batches() {
  const c = await consumer(`${base}b`, BY_TURNS);
  const p = await producer(`${base}b`);
  await sendAll(p, 20);
  const seen = new Set();
  await consume(c, async ({ message, ack }) => {
    check(!seen.has(message.toString()), 'twice');
    seen.add(message.toString());
    await ack();
    return seen.size === 20;
  });
  await c.unsubscribe();
  await p.close();
}

async function shares(kind, name) {
  const topic = `${base}${name}`;
  const cs = [await consumer(topic, kind, 'a'), await consumer(topic, kind, 'b')];
  const seen = new Set();
  const all = cs.map((c) => consume(c, async ({ message, ack }) => {
    check(!seen.has(message.toString()), 'twice');
    seen.add(message.toString());
    await ack();
    return seen.size === 60;
  }));
  const p = await producer(topic);
  for (let i = 0; i < 60; i++) await p.sendMessage({ payload: `${i}`, properties: {} });
  await Promise.race(all);
  await p.close();
}

async function cumulative() {
  const c = await consumer(`${base}c`, EXCLUSIVE);
  const p = await producer(`${base}c`);
  for (let i = 0; i < 10; i++) await p.sendMessage({ payload: `${i}`, properties: {} });
  let taken = 0;
  await consume(c, async ({ ack }) => {
    if (++taken < 10) return false;
    await ack({ type: Consumer.ACK_TYPES.CUMULATIVE });
    return true;
  });
  await c.unsubscribe();
  await p.close();
}

async function again() {
  const c = await consumer(`${base}n`, BY_TURNS);
  const p = await producer(`${base}n`);
  await p.sendMessage({ payload: 'x', properties: {} });
  await consume(c, async ({ redeliveryCount, ack }) => {
    await ack(redeliveryCount < 2 ? { type: Consumer.ACK_TYPES.NEGATIVE } : {});
    return redeliveryCount === 2;
  });
  await c.unsubscribe();
  await p.close();
}

async function exclusiveProducer() {
  const p = await producer(`${base}x`, Producer.ACCESS_MODES.EXCLUSIVE);
  let refused = false;
  await producer(`${base}x`, Producer.ACCESS_MODES.EXCLUSIVE).catch(() => (refused = true));
  check(refused, 'a second exclusive producer');
  await p.close();
}

async function main() {
  await step('exclusive, single messages', singles);
  await step('batches', batches);
  await step('Failover', () => shares(FAILOVER, 'failover'));
  await step('Shared', () => shares(BY_TURNS, 'shared'));
  await step('Key_Shared', () => shares(KEY_SHARED, 'key-shared'));
  await step('cumulative acknowledgement', cumulative);
  await step('negative acknowledgement, counted', again);
  await step('exclusive producer', exclusiveProducer);
  process.exit(failed ? 1 : 0);
}

main();
