"""Reads an OCI image layout, and says what is wrong with an image of hapax in it.

    python3 layout.py [--without-bill] FOLDER ARCHITECTURE...

fails unless it has exactly these platforms and each is as it should be.
"""
import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import elf

BINARY = "usr/local/bin/hapax"
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
BYTES_MAX = 15_000_000
BILL = "application/vnd.cyclonedx+json"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layout:
    """A folder with an image for several platforms, and what is attached to it."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def blob(self, descriptor):
        """The bytes that a descriptor stands for, which have to be what it says."""
        kind, digest = descriptor["digest"].split(":")
        content = (self.folder / "blobs" / kind / digest).read_bytes()
        if hashlib.new(kind, content).hexdigest() != digest or len(content) != descriptor["size"]:
            raise ValueError(f"{descriptor['digest']} is not what its name says")
        return content

    def json(self, descriptor):
        return json.loads(self.blob(descriptor))

    def entries(self):
        """Every manifest, by way of the index that the image's tag names."""
        top = json.loads((self.folder / "index.json").read_text())["manifests"]
        for entry in top:
            if entry["mediaType"] == INDEX:
                yield from self.json(entry)["manifests"]
            else:
                yield entry

    def images(self):
        """Each architecture that an entry names, with the manifest behind it; the same one twice is listed twice."""
        return [
            (entry["platform"]["architecture"], Image(self, entry))
            for entry in self.entries()
            if entry.get("platform", {}).get("os") == "linux"
        ]

    def bills(self):
        """Bills of materials by the digest of the manifest that each is attached to."""
        attached = {}
        for entry in self.entries():
            manifest = self.json(entry)
            if manifest.get("artifactType") == BILL:
                attached[manifest["subject"]["digest"]] = self.json(manifest["layers"][0])
        return attached


class Image:
    """One platform's image."""

    def __init__(self, layout, descriptor):
        self.layout = layout
        self.digest = descriptor["digest"]
        self.manifest = layout.json(descriptor)
        self.description = layout.json(self.manifest["config"])
        self.config = self.description["config"]
        self.bytes = sum(layer["size"] for layer in self.manifest["layers"])

    @property
    def labels(self):
        prefix = "org.opencontainers.image."
        return {name.removeprefix(prefix): value for name, value in self.config["Labels"].items()}

    @property
    def environment(self):
        return dict(line.split("=", 1) for line in self.config["Env"])

    def files(self):
        """What its layers leave: every regular file, with its bytes and its mode."""
        files = {}
        for layer in self.manifest["layers"]:
            content = self.layout.blob(layer)
            if layer["mediaType"].endswith("+gzip"):
                content = gzip.decompress(content)
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    if member.isfile():
                        files[member.name.lstrip("./")] = (archive.extractfile(member).read(), member.mode)
        return files


def complaints(layout, architectures, *, with_bill=True):
    """Everything that is wrong, as sentences."""
    found = []
    images = layout.images()
    if sorted(name for name, _ in images) != sorted(architectures):
        found.append(f"platforms {[name for name, _ in images]}, wanted {list(architectures)}")
    for architecture, image in images:
        found += [f"{architecture}: {sentence}" for sentence in _wrong_with(image, architecture)]
        if with_bill and not layout.bills().get(image.digest, {}).get("components"):
            found.append(f"{architecture}: no bill of materials is attached")
    return found


def _wrong_with(image, architecture):
    files = image.files()
    if image.description["architecture"] != architecture:
        yield f"its configuration says {image.description['architecture']}"
    binary, mode = files.get(BINARY, (b"", 0))
    try:
        header = elf.read(binary)
    except elf.NotElf as error:
        yield f"{BINARY} {error}"
    else:
        if header.machine != architecture:
            yield f"its binary is for {header.machine}"
        if not header.static:
            yield "its binary needs libraries or an interpreter"
    if mode & 0o777 != 0o755:
        yield f"{BINARY} has mode {mode:o}"
    if b"BEGIN CERTIFICATE" not in files.get(AUTHORITIES, (b"", 0))[0]:
        yield f"no certificate authorities in {AUTHORITIES}"
    if image.config.get("User") != "65532:65532":
        yield f"its user is {image.config.get('User')}"
    unpacked = sum(len(content) for content, _ in files.values())
    if max(unpacked, image.bytes) >= BYTES_MAX:
        yield f"{image.bytes} bytes packed, {unpacked} unpacked: {BYTES_MAX} or more"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-bill", action="store_true")
    parser.add_argument("folder")
    parser.add_argument("architectures", nargs="+")
    arguments = parser.parse_args()
    layout = Layout(arguments.folder)
    for architecture, image in layout.images():
        unpacked = sum(len(content) for content, _ in image.files().values())
        print(f"linux/{architecture}: {image.bytes} bytes packed, {unpacked} unpacked, {image.digest}")
    found = complaints(layout, arguments.architectures, with_bill=not arguments.without_bill)
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
