"""What the Python clients of the tests share: the command line and the lines they print."""

import argparse
import json
import sys
import threading
import time


def run(operations):
    """Reads the command line and returns the chosen operation with its options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operation", choices=list(operations))
    for name in (
        "bootstrap", "topic", "group", "transactional-id", "sasl-mechanism", "sasl-user", "sasl-password",
        "tls-ca", "tls-cert", "tls-key",
    ):
        parser.add_argument("--" + name)
    for name, default in (
        ("partitions", 1), ("replication", 1), ("count", 0), ("first", 0), ("rate", 0),
        ("request-timeout-ms", 30000), ("delivery-timeout-ms", 120000), ("linger-ms", 0), ("batch-bytes", 16384),
        ("in-flight", 5), ("backoff-ms", 100), ("timeout-ms", 30000), ("age-ms", 0),
    ):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--idempotence", choices=["true", "false", "unset"], default="true")
    for name in ("until-input-ends", "read-committed", "keys"):
        parser.add_argument("--" + name, action="store_true")
    options = parser.parse_args()
    options.target = options.topic, options.partitions
    return operations[options.operation], options


def idempotence(options, name):
    """The setting of that name; none where the client's own default is asked for."""
    return {} if options.idempotence == "unset" else {name: options.idempotence == "true"}


def key(options, n):
    return f"msg-{n}".encode() if options.keys else None


def timestamp_ms(options):
    """The time of a record that is as old as was asked for; none for now."""
    return int(time.time() * 1000) - options.age_ms if options.age_ms else None


def follow_input(options, ended):
    """Lets lines of the input name another topic and its partitions, until it ends."""
    for words in map(str.split, sys.stdin):
        if words[0] == "topic":
            options.target = words[1], int(words[2])
    ended.set()


class Tally:
    """Counts what became of each record, and prints it."""

    def __init__(self):
        self.counts = {"sent": 0, "acked": 0, "failed": 0}

    def acked(self, n, partition, offset):
        self.counts["acked"] += 1
        line({"n": n, "partition": partition, "offset": offset})

    def failed(self, n, error):
        self.counts["failed"] += 1
        line({"n": n, "error": str(error)})

    def end(self):
        line(self.counts)
        sys.exit(1 if self.counts["acked"] != self.counts["sent"] else 0)


def records(options, tally):
    """Yields each record to be produced with the seconds until it is due."""
    ended = followed_input(options) if options.until_input_ends else threading.Event()
    n, start = options.first, time.monotonic()
    while (not options.count or tally.counts["sent"] < options.count) and not ended.is_set():
        ahead = tally.counts["sent"] / options.rate - (time.monotonic() - start) if options.rate else 0
        yield n, max(ahead, 0)
        n, tally.counts["sent"] = n + 1, tally.counts["sent"] + 1


def followed_input(options):
    """An event that is set once the input has ended; its lines are followed until then."""
    ended = threading.Event()
    threading.Thread(target=follow_input, args=(options, ended), daemon=True).start()
    return ended


def transactions(options):
    """Yields (records, commits) of three transactions: committed, aborted, committed."""
    for i, commits in enumerate((True, False, True)):
        first = options.first + i * options.count
        yield range(first, first + options.count), commits


def line(members):
    print(json.dumps(members), flush=True)
