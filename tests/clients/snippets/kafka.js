// Around the README's lines for KafkaJS: one record.
const {Kafka} = require('kafkajs');
// SNIPPET
(async () => {
  await producer.connect();
  await producer.send({topic: 'orders', messages: [{value: '1'}]});
  await producer.disconnect();
})();
