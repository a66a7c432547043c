"""kafka-python against `hapax dev`: `produce BOOTSTRAP TOPIC FIRST COUNT` or `consume BOOTSTRAP TOPIC GROUP COUNT`.

Prints "value offset" for each message, in the order of the offsets.
"""

import sys

from kafka import KafkaConsumer, KafkaProducer


def produce(bootstrap, topic, first, count):
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for n in range(int(first), int(first) + int(count)):
        print(n, producer.send(topic, str(n).encode()).get(30).offset)
    producer.close()


def consume(bootstrap, topic, group, count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=30000
    )
    read = 0
    for message in consumer:
        print(int(message.value), message.offset)
        read += 1
        if read == int(count):
            break
    consumer.commit()
    consumer.close()
    if read < int(count):
        sys.exit(f"only {read} messages came")


{"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
