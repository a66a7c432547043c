// KafkaJS against `hapax dev`: `produce BOOTSTRAP TOPIC FIRST COUNT` or `consume BOOTSTRAP TOPIC GROUP COUNT`.
// Prints "value offset" for each message, in the order of the offsets.
'use strict';

const {Kafka, logLevel} = require('kafkajs');

const [operation, bootstrap, topic, ...rest] = process.argv.slice(2);
const kafka = new Kafka({clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING});

async function produce(first, count) {
  const producer = kafka.producer({idempotent: true, maxInFlightRequests: 1});
  await producer.connect();
  for (let n = first; n < first + count; n += 1) {
    const [{baseOffset}] = await producer.send({topic, messages: [{value: String(n)}]});
    console.log(`${n} ${baseOffset}`);
  }
  await producer.disconnect();
}

async function consume(groupId, count) {
  const consumer = kafka.consumer({groupId, maxWaitTimeInMs: 200});
  await consumer.connect();
  await consumer.subscribe({topics: [topic], fromBeginning: true});
  let read = 0;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({payload}) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({partition, message: {value, offset}}) => {
        console.log(`${value} ${offset}`);
        await consumer.commitOffsets([{topic, partition, offset: String(Number(offset) + 1)}]);
        read += 1;
        if (read === count) resolve();
      },
    });
  });
  await consumer.disconnect();
}

const run = operation === 'produce' ? produce(Number(rest[0]), Number(rest[1])) : consume(rest[0], Number(rest[1]));
run.catch((error) => {
  console.error(`KafkaJS: ${error.name}: ${error.message}`);
  process.exit(1);
});
