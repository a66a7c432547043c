"""The kafka-python client of the tests; tests/clients/README.md has the command line and the output."""

import sys
import time

from kafka import KafkaConsumer, KafkaProducer

from common import Tally, idempotence, key, line, records, run, timestamp_ms, transactions


def common(options):
    return {"bootstrap_servers": options.bootstrap.split(","), "client_id": "kafka-python"}


def producer(options, **more):
    return KafkaProducer(
        **common(options), acks=options.acks if options.acks == "all" else int(options.acks), request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms, linger_ms=options.linger_ms, batch_size=options.batch_bytes,
        max_in_flight_requests_per_connection=options.in_flight, retry_backoff_ms=options.backoff_ms, **more,
    )


def send(client, options, n):
    topic, partitions = options.target
    return client.send(
        topic, str(n).encode(), key(options, n), partition=n % partitions, timestamp_ms=timestamp_ms(options),
    )


def produce(options):
    tally = Tally()
    client = producer(options, **idempotence(options, "enable_idempotence"))
    for n, ahead in records(options, tally):
        time.sleep(ahead)
        future = send(client, options, n)
        future.add_callback(lambda at, n=n: tally.acked(n, at.partition, at.offset))
        future.add_errback(lambda error, n=n: tally.failed(n, error))
    client.flush(options.delivery_timeout_ms / 1000)
    client.close()
    tally.end()


def transact(options):
    client = producer(options, transactional_id=options.transactional_id)
    client.init_transactions()
    for numbers, commits in transactions(options):
        client.begin_transaction()
        for n in numbers:
            at = send(client, options, n).get(30)
            line({"n": n, "partition": at.partition, "offset": at.offset, "committed": commits})
        if commits:
            client.commit_transaction()
        else:
            client.abort_transaction()
    client.close()
    line({"committed": 2 * options.count, "aborted": options.count})


def consume(options):
    client = KafkaConsumer(
        options.topic, **common(options), group_id=options.group, auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed" if options.read_committed else "read_uncommitted",
    )
    consumed, end = 0, time.monotonic() + options.timeout_ms / 1000
    while consumed < options.count:
        if time.monotonic() > end:
            sys.exit(f"gave up after {consumed} records")
        for batch in client.poll(500).values():
            for record in batch:
                consumed += 1
                line({"n": int(record.value), "partition": record.partition, "offset": record.offset})
    client.commit()
    client.close()
    line({"consumed": consumed})


operation, options = run({"produce": produce, "consume": consume, "transact": transact})
operation(options)
