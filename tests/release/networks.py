"""Network namespaces that stand in for a compose project's network: one each, joined by a bridge, with names for all."""
import os
import shutil
import subprocess
from pathlib import Path


class Networks:
    """A namespace for each name; in each, the names lead to the others."""

    def __init__(self, names):
        self.prefix = f"hapax-{os.getpid()}-"
        self.hub = f"{self.prefix}hub"
        self.names = names

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, "hub"]:
            subprocess.run(["ip", "netns", "delete", self.prefix + name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{self.prefix}{name}", ignore_errors=True)

    def inside(self, name):
        """What to put before a command that is to run in that namespace."""
        return ["ip", "netns", "exec", self.prefix + name]

    def _make(self):
        # A block that is set apart for the tests of networks; it stays within these namespaces.
        addresses = {name: f"198.18.0.{number}" for number, name in enumerate(self.names, start=2)}
        hosts = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items())
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names):
            namespace = self.prefix + name
            # `ip netns exec` lays the files of this folder over those of /etc.
            folder = Path("/etc/netns") / namespace
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(hosts)
            _ip("netns", "add", namespace)
            port = f"port{number}"
            _ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", namespace, "address", "add", f"{addresses[name]}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)
