"""What a kubelet does with a Pod, as far as the charts depend on it, with processes in place of containers.

No test here has a node. This follows what Kubernetes documents: init containers start one after the other; one with
restartPolicy Always counts as started once its startupProbe has succeeded, and stays; then the other containers start all
at once. A Pod that is deleted has its terminationGracePeriodSeconds: its containers get SIGTERM together, and native
sidecars only after these have ended, in reverse order; what is left at the end is killed. When the containers of a Job
have ended their Pod has, and native sidecars get SIGTERM.

The address of the Pod is 127.0.0.2: it reaches what listens on every address, and not what listens on 127.0.0.1 alone.
"""

import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

POD_ADDRESS = "127.0.0.2"


def free_ports(count):
    """Ports in a row, below those that are lent to outgoing connections: they stay free until they are listened on."""
    while True:
        start = random.randrange(20_000, 32_000)
        try:
            for port in range(start, start + count):
                with socket.socket() as other:
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    other.bind(("0.0.0.0", port))
            return list(range(start, start + count))
        except OSError:
            continue


class Failed(Exception):
    """The Pod would not have come up, or would have been killed."""


class Container:
    """A container of a rendered Pod, and the process that is run for it."""

    def __init__(self, spec, command, environment, log):
        self.spec = spec
        self.name = spec["name"]
        self.command = command
        self.environment = environment
        self.log = Path(log)
        self.process = None
        self.ended_at = None

    @property
    def is_native(self):
        return self.spec.get("restartPolicy") == "Always"

    def start(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT)

    def signal(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds):
        """Its exit code."""
        try:
            code = self.process.wait(max(seconds, 0.001))
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} has not ended in its time:\n{self.text()}") from None
        self.ended_at = self.ended_at or time.monotonic()
        return code

    def probe(self, kind):
        """Whether a probe succeeds once."""
        probe = self.spec[kind]
        if "exec" in probe:
            return subprocess.run([self.command[0], *probe["exec"]["command"][1:]], env=self.environment, capture_output=True).returncode == 0
        port = probe["httpGet"]["port"]
        if isinstance(port, str):
            port = next(item["containerPort"] for item in self.spec["ports"] if item["name"] == port)
        try:
            url = f"http://{POD_ADDRESS}:{port}{probe['httpGet'].get('path', '/')}"
            with urllib.request.urlopen(url, timeout=probe.get("timeoutSeconds", 1)) as answer:
                return 200 <= answer.status < 400
        except (urllib.error.URLError, OSError):
            return False

    def wait_until_started(self):
        probe = self.spec["startupProbe"]
        for _ in range(probe.get("failureThreshold", 3)):
            if self.probe("startupProbe"):
                return
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with {self.process.returncode}:\n{self.text()}")
            time.sleep(probe.get("periodSeconds", 10))
        raise Failed(f"the startupProbe of {self.name} did not succeed:\n{self.text()}")

    def text(self):
        return self.log.read_text(errors="replace")


class Pod:
    """A rendered Pod whose hapax is a process of that program, and whose application is a process of the test's."""

    def __init__(self, spec, hapax, application, folder, sidecar="hapax"):
        self.grace = spec.get("terminationGracePeriodSeconds", 30)
        self.init = [self._container(item, sidecar, hapax, application, folder) for item in spec.get("initContainers") or []]
        self.containers = [self._container(item, sidecar, hapax, application, folder) for item in spec["containers"]]

    def _container(self, spec, sidecar, hapax, application, folder):
        given = {item["name"]: item["value"] for item in spec.get("env") or []}
        # What the runtime gives a container, and nothing of this machine's.
        environment = {"PATH": os.environ["PATH"], "HOSTNAME": "pod", **given}
        command = [str(hapax), *spec.get("args", [])] if spec["name"] == sidecar else application
        return Container(spec, command, environment, Path(folder) / f"{spec['name']}.log")

    def container(self, name):
        return next(item for item in self.init + self.containers if item.name == name)

    def start(self):
        for container in self.init:
            container.start()
            if container.is_native:
                container.wait_until_started()
            elif (code := container.wait(60)) != 0:
                raise Failed(f"{container.name} ended with {code}")
        for container in self.containers:
            container.start()

    def delete(self):
        """Ends the Pod as its deletion does; the exit codes by name."""
        deadline = time.monotonic() + self.grace
        for container in self.containers:
            container.signal()
        return self._await(deadline)

    def finish(self, seconds):
        """Waits for a Job's containers, and ends the native sidecars then; the exit codes by name."""
        codes = {container.name: container.wait(seconds) for container in self.containers}
        return codes | self._await(time.monotonic() + self.grace)

    def _await(self, deadline):
        codes = {}
        for container in self.containers:
            codes[container.name] = container.wait(deadline - time.monotonic())
        for container in reversed([item for item in self.init if item.is_native]):
            container.signal()
            codes[container.name] = container.wait(deadline - time.monotonic())
        return codes

    def kill(self):
        for container in self.init + self.containers:
            if container.process is not None and container.process.poll() is None:
                container.process.kill()
                container.process.wait()
