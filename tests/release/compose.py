"""config/compose.yaml as a model: its services, and where each name in it leads."""
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "config/compose.yaml"


class Compose:
    def __init__(self, document):
        self.document = document
        self.services = document["services"]

    @classmethod
    def read(cls):
        return cls(yaml.safe_load(FILE.read_text()))

    def home(self, name):
        """The service whose network a service is in: its own, or that which it shares."""
        shared = self.services[name].get("network_mode", "")
        return shared.removeprefix("service:") if shared else name

    def homes(self):
        return [name for name in self.services if self.home(name) == name]

    def needs(self, name):
        return self.services[name].get("depends_on", {})

    def in_order(self):
        """Every service after those that it depends on."""
        order = []

        def visit(name):
            for needed in self.needs(name):
                visit(needed)
            if name not in order:
                order.append(name)

        for name in self.services:
            visit(name)
        return order

    def mounts(self, name):
        """Files and folders of the repository by their path in the container."""
        mounts = {}
        for volume in self.services[name].get("volumes", []):
            source, target, mode = volume.split(":")
            assert mode == "ro", volume
            mounts[target] = (FILE.parent / source).resolve()
        return mounts

    def contents(self, name):
        """Files that the document itself carries, by their path in the container."""
        return {
            config["target"]: self.document["configs"][config["source"]]["content"]
            for config in self.services[name].get("configs", [])
        }

    def kafka_properties(self):
        """server.properties as the Kafka image makes it of its environment."""
        environment = self.services["kafka"]["environment"]
        return {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}

    def addresses(self):
        """Each HOST:PORT that anything in it, or in a file that it mounts, connects to, with who does."""
        found = {("hapax", self.services["hapax"]["environment"]["HAPAX_UPSTREAM"])}
        for line in self.contents("line").values():
            found |= {("line", upstream) for upstream in re.findall(r'"upstream": "([^"]+)"', line)}
        for name in self.services:
            for argument in self.services[name].get("command", []):
                found |= {(name, argument.split("=")[1])} if argument.startswith("--bootstrap-server=") else set()
            for file in (path for path in self.mounts(name).values() if path.suffix == ".yaml" or path.is_dir()):
                for text in [file.read_text()] if file.is_file() else [part.read_text() for part in file.glob("*.yaml")]:
                    found |= {(name, target) for target in re.findall(r"(?m)^\s*- targets: \[(.+)\]$", text)}
                    found |= {(name, target) for target in re.findall(r"(?m)^\s*url: http://(\S+)$", text)}
        return found
