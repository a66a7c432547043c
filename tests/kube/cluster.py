"""A real etcd and a real kube-apiserver on free ports of this machine: no node, no scheduler, no controllers."""

import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import rendering

PROGRAMS = rendering.INSTALLED / "kube"


class Refused(Exception):
    """What kubectl printed as it failed."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """Boots when it is made, with MutatingAdmissionPolicy as a cluster of 1.34 has to be told to have it."""

    def __init__(self, folder=None, port=None):
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="hapax-kube-")
        self.folder = Path(folder or self._temporary.name)
        self._processes = []
        self.kubeconfig = self.folder / "kubeconfig"
        try:
            self._start_etcd()
            self._start_server(port or free_port())
        except BaseException:
            self.close()
            raise

    def _start_etcd(self):
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd = client
        self._start(
            "etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--initial-cluster", f"default={peer}",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        )  # fmt: skip

    def _start_server(self, port):
        key, tokens, token = self.folder / "accounts.key", self.folder / "tokens.csv", secrets.token_hex(16)
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f"{token},admin,1,system:masters\n")
        self._start(
            "kube-apiserver", "--etcd-servers", self._etcd, "--cert-dir", self.folder / "certificates",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--authorization-mode", "RBAC", "--token-auth-file", tokens,
            # Both families: charts may ask for either.
            "--service-cluster-ip-range", "10.0.0.0/24,fd00:10::/112",
            "--endpoint-reconciler-type", "none",
            # Without controllers nobody makes the default account of a namespace, which every Pod has.
            "--disable-admission-plugins", "ServiceAccount",
            "--feature-gates", "MutatingAdmissionPolicy=true",
            "--runtime-config", "admissionregistration.k8s.io/v1beta1=true",
        )  # fmt: skip
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }))  # fmt: skip
        self._await_ready()

    def _start(self, program, *arguments):
        log = (self.folder / f"{program}.log").open("wb")
        command = [PROGRAMS / program, *map(str, arguments)]
        self._processes.append((program, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        log.close()

    def _await_ready(self):
        deadline = time.monotonic() + 300
        while True:
            for program, process in self._processes:
                if process.poll() is not None:
                    raise Refused(f"{program} ended:\n{(self.folder / f'{program}.log').read_text()[-2000:]}")
            try:
                return self.kubectl("get", "--raw", "/readyz")
            except Refused:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def kubectl(self, *arguments, text=None):
        """Its output, or Refused."""
        done = subprocess.run(
            [PROGRAMS / "kubectl", "--kubeconfig", self.kubeconfig, *map(str, arguments)], input=text, capture_output=True, text=True,
            env={**os.environ, "HOME": str(self.folder)},
        )  # fmt: skip
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def apply(self, documents, *arguments):
        """What the server makes of objects, in their order."""
        documents = list(documents)
        if not documents:
            return []
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        found = json.loads(self.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-o", "json", "-f", "-", *arguments, text=json.dumps(listed)))
        return found["items"] if found["kind"] == "List" else [found]

    def create(self, document, *arguments):
        """What the server makes of one object."""
        return json.loads(self.kubectl("create", "--validate=strict", "-o", "json", "-f", "-", *arguments, text=json.dumps(document)))

    def versions(self):
        """The versions of etcd and of the server."""
        etcd = subprocess.run([PROGRAMS / "etcd", "--version"], capture_output=True, text=True, check=True).stdout
        server = json.loads(self.kubectl("get", "--raw", "/version"))["gitVersion"]
        return etcd.splitlines()[0].rsplit(" ", 1)[1], server

    def close(self):
        for _, process in reversed(self._processes):
            process.kill()
            process.wait()
        if self._temporary:
            self._temporary.cleanup()


if __name__ == "__main__":
    import signal
    import sys

    # For use by hand: cluster.py FOLDER PORT, until it is told to end.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    cluster = Cluster(*sys.argv[1:2], port=sys.argv[2] if len(sys.argv) > 2 else None)
    print(f"KUBECONFIG={cluster.kubeconfig}", flush=True)
    try:
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    finally:
        cluster.close()
