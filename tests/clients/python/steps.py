"""A confluent-kafka (librdkafka) producer that does what it is told, line by line; tests/clients/README.md has the lines.

Each record's value is its number. A batch of a partition holds three records and leaves as soon as it has them.
"""

import sys

from confluent_kafka import Producer

from common import line, run


def steps(options):
    client = Producer({
        "bootstrap.servers": options.bootstrap, "client.id": "confluent-kafka", "enable.idempotence": True,
        "batch.num.messages": 3, "linger.ms": options.linger_ms, "message.timeout.ms": options.delivery_timeout_ms,
        "retry.backoff.ms": options.backoff_ms, "retry.backoff.max.ms": options.backoff_ms,
        "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10, "log_level": 2,
    })
    n = options.first
    counts = {"sent": 0, "acked": 0, "failed": 0}

    def delivered(error, message):
        counts["failed" if error else "acked"] += 1
        line({"n": int(message.value()), "partition": message.partition(), "error": str(error) if error else None})

    for step in sys.stdin:
        word, *numbers = step.split()
        if word == "produce":
            partition, count = map(int, numbers)
            for _ in range(count):
                client.produce(options.topic, str(n).encode(), partition=partition, on_delivery=delivered)
                n, counts["sent"] = n + 1, counts["sent"] + 1
        elif word == "flush":
            left = client.flush(options.delivery_timeout_ms / 1000)
            line({"flushed": left == 0})
    client.flush(options.delivery_timeout_ms / 1000)
    line(counts)
    sys.exit(1 if counts["acked"] != counts["sent"] else 0)


operation, options = run({"steps": steps})
operation(options)
