// The KafkaJS client of the tests; tests/clients/README.md has the command line and the output.
'use strict';

const {parseArgs} = require('node:util');
const {Kafka, logLevel} = require('kafkajs');

const names = [
  'bootstrap', 'topic', 'partitions', 'count', 'first', 'group', 'transactional-id', 'request-timeout-ms', 'backoff-ms', 'timeout-ms', 'acks', 'idempotence', 'batch-bytes',
];
const {values: options, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    ...Object.fromEntries(names.map((name) => [name, {type: 'string'}])),
    keys: {type: 'boolean'},
    timestamps: {type: 'boolean'},
    'read-committed': {type: 'boolean'},
  },
});
const number = (name, otherwise) => Number(options[name] ?? otherwise);
const count = number('count', 0), partitions = number('partitions', 1), first = number('first', 0);
const topic = options.topic;
const line = (members) => console.log(JSON.stringify(members));

const kafka = new Kafka({
  clientId: 'kafkajs', brokers: options.bootstrap.split(','), logLevel: logLevel.NOTHING,
  requestTimeout: number('request-timeout-ms', 30000), retry: {initialRetryTime: number('backoff-ms', 100), retries: 20},
});

const message = (n) => ({
  key: options.keys ? `msg-${n}` : null, value: String(n), partition: n % partitions,
  // Without one KafkaJS stamps a record each time that it sends it.
  timestamp: options.timestamps ? String(Date.now()) : undefined,
});

// The records n ... n + size - 1 in one call; KafkaJS tells the offset of the first record of each partition.
async function send(sender, n, size, more) {
  const numbers = Array.from({length: size}, (_, i) => n + i);
  const results = await sender.send({topic, acks: options.acks === '1' ? 1 : -1, messages: numbers.map(message)});
  for (const {partition, baseOffset} of results) {
    numbers.filter((m) => m % partitions === partition)
      .forEach((m, i) => line({n: m, partition, offset: Number(baseOffset) + i, ...more}));
  }
}

async function produce() {
  const producer = kafka.producer(options.idempotence === 'true' || !options.idempotence ? {idempotent: true, maxInFlightRequests: 1} : {});
  await producer.connect();
  for (let sent = 0; sent < count; sent += 10) await send(producer, first + sent, Math.min(10, count - sent), {});
  await producer.disconnect();
  line({sent: count, acked: count, failed: 0});
}

// Three transactions of --count records: committed, aborted, committed.
async function transact() {
  const producer = kafka.producer({transactionalId: options['transactional-id'], idempotent: true, maxInFlightRequests: 1});
  await producer.connect();
  let n = first;
  for (const committed of [true, false, true]) {
    const transaction = await producer.transaction();
    await send(transaction, n, count, {committed});
    n += count;
    await (committed ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  line({committed: 2 * count, aborted: count});
}

async function consume() {
  const consumer = kafka.consumer({groupId: options.group, readUncommitted: !options['read-committed'], maxWaitTimeInMs: 500});
  await consumer.connect();
  await consumer.subscribe({topics: [topic], fromBeginning: true});
  let consumed = 0;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`gave up after ${consumed} records`)), number('timeout-ms', 30000));
    consumer.on(consumer.events.CRASH, ({payload}) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachBatch: async ({batch}) => {
        for (const {value, offset} of batch.messages) line({n: Number(value), partition: batch.partition, offset: Number(offset)});
        await consumer.commitOffsets([{topic, partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1)}]);
        consumed += batch.messages.length;
        if (consumed >= count) {
          clearTimeout(timer);
          resolve();
        }
      },
    });
  });
  await consumer.disconnect();
  line({consumed});
}

const operation = {produce, transact, consume}[positionals[0]];
if (!operation) {
  console.error(`unknown operation ${positionals[0]}`);
  process.exit(64);
}
operation().catch((error) => {
  console.error(`KafkaJS client: ${error.name}: ${error.message}`);
  process.exit(1);
});
