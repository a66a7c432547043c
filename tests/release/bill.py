"""The bill of materials of hapax for a target: every crate that its binary is built of, as CycloneDX 1.5.

    python3 bill.py TARGET REVISION    prints it

What it lists comes from Cargo's own resolution for that target; hashes come from Cargo.lock.
"""
import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bill(target, revision):
    """The same bytes for the same target, revision and Cargo.lock."""
    metadata = json.loads(_cargo("metadata", "--format-version", "1", "--filter-platform", target))
    used = _used(target)
    packages = {package["id"]: package for package in metadata["packages"] if _crate(package) in used}
    hashes = _hashes()
    hapax = packages[metadata["resolve"]["root"]]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{hapax['repository']}/{hapax['version']}/{revision}/{target}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                **_component(hapax, hashes),
                "type": "application",
                "properties": [
                    {"name": "cargo:target", "value": target},
                    {"name": "vcs:revision", "value": revision},
                ],
            }
        },
        "components": sorted(
            (_component(package, hashes) for package in packages.values() if package is not hapax),
            key=lambda component: component["purl"],
        ),
        "dependencies": sorted(
            (_dependencies(node, packages) for node in metadata["resolve"]["nodes"] if node["id"] in packages),
            key=lambda dependency: dependency["ref"],
        ),
    }


def crates(document):
    """Name and version of everything that a bill lists."""
    return {(part["name"], part["version"]) for part in document["components"]}


def _cargo(command, *arguments):
    return subprocess.check_output(["cargo", command, "--locked", *arguments], cwd=ROOT, text=True)


def _used(target):
    """What is linked in or runs in the build. Cargo's metadata has what tests need too, and what they make others need."""
    lines = _cargo("tree", "--edges", "normal,build", "--prefix", "none", "--target", target, "--format", "{p}").splitlines()
    return {(name, version.removeprefix("v")) for name, version, *_ in (line.split() for line in lines)}


def _hashes():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def _dependencies(node, packages):
    needed = (dependency["pkg"] for dependency in node["deps"] if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]))
    return {
        "ref": _purl(packages[node["id"]]),
        "dependsOn": sorted(_purl(packages[name]) for name in needed if name in packages),
    }


def _crate(package):
    return package["name"], package["version"]


def _purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def _component(package, hashes):
    component = {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": _purl(package),
    }
    if package["description"]:
        component["description"] = " ".join(package["description"].split())
    if package["license"]:
        # The older way of writing "one or the other".
        component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := hashes.get(_crate(package)):
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return component


if __name__ == "__main__":
    print(json.dumps(bill(*sys.argv[1:]), indent=1))
