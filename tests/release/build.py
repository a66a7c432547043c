"""Builds the image of hapax without a container engine, into an OCI layout.

    python3 build.py FOLDER ARCHITECTURE...     amd64, arm64 or both; the layout is FOLDER/layout

The binaries are compiled from what the Dockerfile's first stage copies, with the variables that it sets; buildah carries
out its last stage as it stands. A bill of materials is attached to each platform's image.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bill
import layout

ROOT = Path(__file__).resolve().parents[2]
RUST_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
# What an OCI manifest has for its configuration where it is no image.
EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("architectures", nargs="+", choices=RUST_NAMES)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    targets = {}
    for architecture in arguments.architectures:
        targets[architecture] = static_target(architecture)
        stage(compiled(folder, targets[architecture]), folder / architecture / "image")
    assembled = assemble(folder, arguments.architectures)
    attach_bills(layout.Layout(assembled), targets)
    print(assembled)


class Dockerfile:
    """What is read out of the Dockerfile: the two ends of it."""

    def __init__(self):
        self.first, self.last = re.split(r"(?m)^(?=FROM scratch$)", (ROOT / "Dockerfile").read_text())
        self.variables = dict(re.findall(r"(?m)^ENV (\w+)=(\S+)$", self.first))
        lines = re.findall(r"(?m)^COPY (?!--)(.+)$", self.first)
        self.copies = [name for line in lines for name in line.split()[:-1]]


def revision():
    """The commit, marked where the work tree differs from it in what goes into the image."""
    git = lambda *arguments: subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()
    changed = git("status", "--porcelain", "--", "src", "Cargo.toml", "Cargo.lock", "Dockerfile")
    return git("rev-parse", "HEAD") + ("-dirty" if changed else "")


def version():
    return re.search(r'(?m)^version = "(.+)"$', (ROOT / "Cargo.toml").read_text())[1]


def static_target(architecture):
    """musl's standard library comes by rustup. Where that cannot be had, a static binary with glibc does for the machine's
    own kind, and says so."""
    target = f"{RUST_NAMES[architecture]}-unknown-linux-musl"
    error = add_target(target)
    if error is None:
        return target
    fallback = f"{RUST_NAMES[architecture]}-unknown-linux-gnu"
    if host() != fallback:
        sys.exit(f"no {target} to compile for:\n{error}")
    print(f"WARNING: rustup has no {target}; the image gets a static binary with glibc instead", file=sys.stderr)
    return fallback


def add_target(target):
    """Why the standard library for a target cannot be had; nothing where it is there."""
    added = subprocess.run(["rustup", "target", "add", target], cwd=ROOT, capture_output=True, text=True)
    return None if added.returncode == 0 else added.stderr


def host():
    said = subprocess.check_output(["rustc", "--verbose", "--version"], cwd=ROOT, text=True)
    return re.search(r"(?m)^host: (\S+)$", said)[1]


def compiled(folder, target):
    """hapax as the Dockerfile's first stage compiles it: from what that sees and nothing else."""
    dockerfile = Dockerfile()
    context = folder / "context"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    for name in dockerfile.copies:
        source = ROOT / name
        # Times of files stay, for Cargo.
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, context / name)
    cargo = folder / "cargo"
    environment = os.environ | dockerfile.variables | {"HAPAX_REVISION": revision(), "CARGO_TARGET_DIR": str(cargo)}
    if target.endswith("-linux-gnu"):
        environment["RUSTFLAGS"] = "-C target-feature=+crt-static"
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "hapax", "--target", target]
    subprocess.run(command, cwd=context, env=environment, check=True)
    return cargo / target / "release/hapax"


def stage(binary, image):
    """What the first stage leaves in /image."""
    shutil.rmtree(image, ignore_errors=True)
    for source, name, mode in (
        (binary, layout.BINARY, 0o755),
        (ROOT / "LICENSE", "usr/share/doc/hapax/LICENSE", 0o644),
        (AUTHORITIES, layout.AUTHORITIES, 0o644),
    ):
        place = image / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        place.chmod(mode)


def assemble(folder, architectures):
    """The last stage for each platform, in one index; the same bytes for the same commit."""
    places = ["--root", str(folder / "storage"), "--runroot", str(folder / "storage-run"), "--storage-driver", "vfs"]
    buildah = lambda *arguments: subprocess.run(["buildah", *places, *arguments], check=True, stdout=sys.stderr)
    shutil.rmtree(folder / "storage", ignore_errors=True)
    (folder / "last").write_text(Dockerfile().last)
    (folder / "empty").mkdir(exist_ok=True)
    when = subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True).strip()
    name = "localhost/hapax"
    for architecture in architectures:
        buildah(
            "bud", "--quiet", "--isolation", "chroot", "--format", "oci", "--platform", f"linux/{architecture}",
            "--timestamp", when, "--build-arg", f"VERSION={version()}", "--build-arg", f"REVISION={revision()}",
            "--build-context", f"build={folder / architecture}", "--manifest", name,
            "--file", str(folder / "last"), str(folder / "empty"),
        )  # fmt: skip
    assembled = folder / "layout"
    shutil.rmtree(assembled, ignore_errors=True)
    buildah("manifest", "push", "--quiet", "--all", name, f"oci:{assembled}:{version()}")
    return assembled


def attach_bills(assembled, targets):
    """Each platform's bill of materials, as a manifest whose subject is the image: registries list those, and being
    entries of the index they are copied along with it."""
    top_path = assembled.folder / "index.json"
    top = json.loads(top_path.read_text())
    [tag] = top["manifests"]
    index = assembled.json(tag)
    for image in list(index["manifests"]):
        target = targets[image["platform"]["architecture"]]
        content = json.dumps(bill.bill(target, revision()), indent=1).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": layout.MANIFEST,
            "artifactType": layout.BILL,
            "config": store(assembled, EMPTY, EMPTY_TYPE),
            "layers": [
                store(assembled, content, layout.BILL)
                | {"annotations": {"org.opencontainers.image.title": "hapax.cdx.json"}}
            ],
            "subject": {name: image[name] for name in ("mediaType", "digest", "size")},
        }
        entry = store(assembled, json.dumps(manifest).encode(), layout.MANIFEST)
        # As builders mark what is attached: no platform ever asks for it.
        entry |= {"artifactType": layout.BILL, "platform": {"os": "unknown", "architecture": "unknown"}}
        index["manifests"].append(entry)
    stored = store(assembled, json.dumps(index).encode(), layout.INDEX)
    top["manifests"] = [tag | stored]
    top_path.write_text(json.dumps(top))


def store(assembled, content, media_type):
    digest = hashlib.sha256(content).hexdigest()
    (assembled.folder / "blobs/sha256" / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


if __name__ == "__main__":
    main()
