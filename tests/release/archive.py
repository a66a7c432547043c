"""Packs release archives: the binary, manual page, completions, the commented configuration and a bill of materials.

    python3 archive.py FOLDER TARGET...     such as x86_64-unknown-linux-musl; the first has to run on this machine

Each is FOLDER/hapax-VERSION-TARGET.tar.gz with a .sha256 beside it: the same bytes for the same commit and compiler.
"""
import argparse
import gzip
import hashlib
import io
import json
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import bill
import build
import elf

FILES = ["LICENSE", "README.md", "CHANGELOG.md", "config/hapax.yaml"]
SHELLS = ["bash", "zsh", "fish"]
# A Mach-O file's processor.
APPLE_PROCESSORS = {0x0100000C: "aarch64", 0x01000007: "x86_64"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("targets", nargs="+")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    written = None
    for target in arguments.targets:
        if error := build.add_target(target):
            sys.exit(f"no {target} to compile for:\n{error}")
        binary = build.compiled(folder.parent / "image", target)
        # What they say does not depend on the machine.
        written = written or texts(binary)
        archive = packed(folder, target, contents(binary.read_bytes(), target, written))
        if found := complaints(archive, build.version(), target):
            sys.exit("\n".join(found))
        print(f"{archive.name}: {archive.stat().st_size} bytes")


def name(version, target):
    """What an archive is called, and the folder in it. Cargo.toml says the same to cargo-binstall."""
    return f"hapax-{version}-{target}"


def texts(binary):
    """What hapax writes of itself, by the names of the archive."""
    said = lambda *arguments: subprocess.check_output([binary, *arguments])
    return {"hapax.1": said("man")} | {f"completions/hapax.{shell}": said("completion", shell) for shell in SHELLS}


def contents(binary, target, written):
    files = {Path(file).name: (build.ROOT / file).read_bytes() for file in FILES}
    document = json.dumps(bill.bill(target, build.revision()), indent=1)
    return files | written | {"hapax": binary, "hapax.cdx.json": document.encode()}


def packed(folder, target, files):
    when = int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=build.ROOT))
    top = name(build.version(), target)
    uncompressed = io.BytesIO()
    with tarfile.open(fileobj=uncompressed, mode="w") as archive:
        for file, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{file}")
            member.size, member.mtime, member.mode = len(content), when, 0o755 if file == "hapax" else 0o644
            archive.addfile(member, io.BytesIO(content))
    path = folder / f"{top}.tar.gz"
    path.write_bytes(gzip.compress(uncompressed.getvalue(), mtime=when))
    path.with_name(f"{path.name}.sha256").write_text(f"{_digest(path)}  {path.name}\n")
    return path


def complaints(archive, version, target):
    """What is wrong with an archive, as sentences."""
    top = name(version, target)
    with tarfile.open(archive) as opened:
        files = {member.name: opened.extractfile(member).read() for member in opened}
    wanted = {*(Path(file).name for file in FILES), *(f"completions/hapax.{shell}" for shell in SHELLS)}
    wanted |= {"hapax", "hapax.1", "hapax.cdx.json"}
    found = []
    if set(files) != {f"{top}/{file}" for file in wanted}:
        found.append(f"{archive.name} has {sorted(files)}")
    if machine(files.get(f"{top}/hapax", b"")) != target:
        found.append(f"{archive.name}: its binary is for {machine(files.get(f'{top}/hapax', b''))}")
    if any(not content for content in files.values()):
        found.append(f"{archive.name} has an empty file")
    digest, _, named = archive.with_name(f"{archive.name}.sha256").read_text().partition("  ")
    if (digest, named.strip()) != (_digest(archive), archive.name):
        found.append(f"{archive.name} does not have its checksum")
    return found


def machine(binary):
    """The target that a binary is for, as far as its header says."""
    if binary[:4] == bytes.fromhex("cffaedfe"):
        (processor,) = struct.unpack_from("<I", binary, 4)
        return f"{APPLE_PROCESSORS.get(processor, processor)}-apple-darwin"
    try:
        header = elf.read(binary)
    except elf.NotElf as error:
        return f"nothing: {error}"
    rust_name = build.RUST_NAMES.get(header.machine, header.machine)
    return f"{rust_name}-unknown-linux-{'musl' if header.static else 'gnu'}"


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
