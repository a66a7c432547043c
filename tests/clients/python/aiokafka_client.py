"""The aiokafka client of the tests; tests/clients/README.md has the command line and the output."""

import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from common import Tally, idempotence, key, line, records, run, transactions


def producer(options, **more):
    return AIOKafkaProducer(
        bootstrap_servers=options.bootstrap, client_id="aiokafka", acks=options.acks if options.acks == "all" else int(options.acks), request_timeout_ms=options.request_timeout_ms,
        linger_ms=options.linger_ms, max_batch_size=options.batch_bytes, retry_backoff_ms=options.backoff_ms, **more,
    )


def send(client, options, n):
    return client.send(options.topic, str(n).encode(), key(options, n), partition=n % options.partitions)


async def produce(options):
    tally, pending = Tally(), set()

    async def delivered(n, future):
        try:
            at = await future
            tally.acked(n, at.partition, at.offset)
        except Exception as error:
            tally.failed(n, error)

    async with producer(options, **idempotence(options, "enable_idempotence")) as client:
        for n, ahead in records(options, tally):
            await asyncio.sleep(ahead)
            task = asyncio.ensure_future(delivered(n, await send(client, options, n)))
            pending.add(task)
            task.add_done_callback(pending.discard)
        await client.flush()
        await asyncio.gather(*pending)
    tally.end()


async def transact(options):
    async with producer(options, transactional_id=options.transactional_id) as client:
        for numbers, commits in transactions(options):
            await client.begin_transaction()
            for n in numbers:
                at = await (await send(client, options, n))
                line({"n": n, "partition": at.partition, "offset": at.offset, "committed": commits})
            if commits:
                await client.commit_transaction()
            else:
                await client.abort_transaction()
    line({"committed": 2 * options.count, "aborted": options.count})


async def consume(options):
    consumed, end = 0, time.monotonic() + options.timeout_ms / 1000
    async with AIOKafkaConsumer(
        options.topic, bootstrap_servers=options.bootstrap, client_id="aiokafka", group_id=options.group,
        auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed" if options.read_committed else "read_uncommitted",
    ) as client:
        while consumed < options.count:
            if time.monotonic() > end:
                sys.exit(f"gave up after {consumed} records")
            for batch in (await client.getmany(timeout_ms=500)).values():
                for record in batch:
                    consumed += 1
                    line({"n": int(record.value), "partition": record.partition, "offset": record.offset})
        await client.commit()
    line({"consumed": consumed})


operation, options = run({"produce": produce, "consume": consume, "transact": transact})
asyncio.run(operation(options))
