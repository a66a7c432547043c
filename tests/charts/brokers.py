"""A Kafka that keeps producers' state, for tests that run what the charts render."""

import json
import subprocess
import urllib.request

import rendering


class Cluster:
    """Brokers with the ids from 0 at these ports, and the topic `orders`; its admin page at the last port."""

    def __init__(self, ports, partitions):
        *brokers, admin = ports
        self.bootstrap, self._admin = f"127.0.0.1:{brokers[0]}", f"127.0.0.1:{admin}"
        listed = ",".join(map(str, brokers))
        command = [rendering.INSTALLED / "kfaked", "-ports", listed, "-admin", self._admin, "-topic", f"orders:{partitions}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("ready"), line

    def records(self):
        """Those of the first partition."""
        with urllib.request.urlopen(f"http://{self._admin}/partition?topic=orders&partition=0") as answer:
            return json.load(answer)["HighWatermark"]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
