"""The application of the Pods that test_node.py runs: a producer that counts what was acknowledged.

KAFKA_BOOTSTRAP_SERVERS is where it produces. LIFE is service (until SIGTERM, after which it still produces, by a new
connection too), idle (connected to nothing until SIGTERM) or job (so many messages and the end; DRAIN has the command that it ends with). The last line that it
prints is "sent N acknowledged M".
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading

from confluent_kafka import Producer

LAST_MESSAGES = 50


class Sender:
    """One producer, and its counts."""

    def __init__(self, bootstrap):
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self.sent = self.acknowledged = 0

    def send(self):
        self._producer.produce("orders", f"{self.sent}".encode(), on_delivery=self._settle)
        self.sent += 1
        self._producer.poll(0)

    def flush(self):
        self._producer.flush(20)

    def _settle(self, error, _):
        if error is None:
            self.acknowledged += 1
        else:
            print("not acknowledged:", error, flush=True)


def main():
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    bootstrap = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    host, port = bootstrap.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port))).close()
    except OSError as error:
        sys.exit(f"hapax was not there: {error}")
    senders = [] if os.environ["LIFE"] == "idle" else [Sender(bootstrap)]
    if os.environ["LIFE"] == "service":
        while not stop.wait(0.02):
            senders[0].send()
            if senders[0].acknowledged:
                print("acknowledged", senders[0].acknowledged, flush=True)
        senders.append(Sender(bootstrap))
    elif os.environ["LIFE"] == "idle":
        print("idle", flush=True)
        stop.wait()
        senders.append(Sender(bootstrap))
    for sender in senders:
        for _ in range(LAST_MESSAGES):
            sender.send()
        sender.flush()
    sent, acknowledged = sum(s.sent for s in senders), sum(s.acknowledged for s in senders)
    print(f"sent {sent} acknowledged {acknowledged}", flush=True)
    if drain := os.environ.get("DRAIN"):
        subprocess.run(shlex.split(drain), check=True)
    sys.exit(0 if sent == acknowledged else 1)


if __name__ == "__main__":
    main()
