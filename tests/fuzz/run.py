#!/usr/bin/env python3
"""Fuzzes hapax: `tests/run fuzz [--minutes N] [--keep] [TARGET...]`.

Builds the package beside this file with the coverage that stable rustc can write, runs libFuzzer on one target after the
other, ten minutes each, and stops with an error at the first crash, hang or use of too much memory. What was found goes
on living below target/fuzz/corpus; with --keep what reaches more than the kept corpora do is added to them, as one
hexadecimal line an input. The whole run (all targets, ten minutes each) writes tests/results/fuzz.md.
"""

import argparse
import datetime
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/fuzz"
BUILT = ROOT / "target/fuzz"
RESULT = ROOT / "tests/results/fuzz.md"
# What cargo-fuzz sets for a build without a sanitizer: hapax has no unsafe code, so that one would find nothing.
COVERAGE = ["-Cpasses=sancov-module"] + [
    f"-Cllvm-args=-sanitizer-coverage-{what}"
    for what in ("level=4", "inline-8bit-counters", "pc-table", "trace-compares")
]
# A target asks for much less, and says so itself; these hold where it is too late for that.
MEMORY_MIB = 1024
ADDRESS_SPACE = 8 << 30
# One input.
HANG_S = 20
# Of a kept corpus, as text.
KEPT_BYTES = 48 << 10
# Who reads nothing new for so long has read enough.
MINUTES = 10


def targets():
    """Name and longest input of each, in the order of the table in targets/mod.rs."""
    text = (HERE / "targets/mod.rs").read_text()
    table = text[text.index("pub const TARGETS") :]
    found = re.findall(r'Target::new\("(\w+)", [\w:]+\)(?:\s*\.heavy\((\d+))?', table)
    return {name: int(length or 512) for name, length in found}


def build():
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True)).group(1)
    environment = os.environ | {"CARGO_TARGET_DIR": str(BUILT), "RUSTFLAGS": " ".join(COVERAGE)}
    # With --target the flags are not those of build scripts, which have no engine to count for.
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", host], cwd=HERE, env=environment, check=True)
    return BUILT / host / "release/hapax-fuzz"


def unpack(name, folder):
    """The kept corpus as the files that libFuzzer reads."""
    folder.mkdir(parents=True)
    kept = HERE / "corpus" / name
    for number, line in enumerate(kept.read_text().split() if kept.exists() else []):
        (folder / f"kept-{number}").write_bytes(bytes.fromhex(line))


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    # It would write one at every crash that is found.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def engine(binary, name, arguments):
    return subprocess.Popen(
        [binary, *arguments],
        env=os.environ | {"TARGET": name, "RUST_BACKTRACE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=limit_memory,
    )


def fuzz(binary, name, length, minutes):
    """Runs one target; gives what it did, or ends the program with what it found."""
    found = BUILT / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    artifacts = BUILT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    kept = pathlib.Path(tempfile.mkdtemp(dir=BUILT)) / name
    unpack(name, kept)
    arguments = [
        f"-max_total_time={round(minutes * 60)}",
        f"-max_len={length}",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        "-print_final_stats=1",
        "-detect_leaks=0",
        f"-artifact_prefix={artifacts}/{name}-",
        str(found),
        str(kept),
    ]
    begun = time.monotonic()
    # Code that was reached for the first time; and, less to the point, reached more or less often than ever before.
    seen = {"cov": 0, "ft": 0}
    begin, newest = {}, {"cov": begun, "ft": begun}
    stats, log = {}, []
    process = engine(binary, name, arguments)
    for line in process.stderr:
        log = (log + [line])[-400:]
        now = time.monotonic()
        if event := re.match(r"#\d+\s+(\w+)\s+cov: (\d+) ft: (\d+) corp: (\d+)", line):
            for what, count in (("cov", int(event[2])), ("ft", int(event[3]))):
                if count > seen[what]:
                    seen[what], newest[what] = count, now
            stats["corpus"] = int(event[4])
            if event[1] == "INITED":
                begin = dict(seen)
        elif stat := re.match(r"stat::(\w+):\s+(\d+)", line):
            stats[stat[1]] = int(stat[2])
    ended = time.monotonic()
    shutil.rmtree(kept.parent)
    if process.wait() != 0:
        sys.stderr.write("".join(log))
        sys.exit(f"{name} failed: the input is in {artifacts}; add it as a line to tests/fuzz/corpus/{name}")
    return {
        "name": name,
        "minutes": (ended - begun) / 60,
        "executions": stats.get("number_of_executed_units", 0),
        "edges": seen["cov"],
        "more": seen["cov"] - begin.get("cov", 0),
        "corpus": stats.get("corpus", 0),
        "memory": stats.get("peak_rss_mb", 0),
        "quiet": (ended - newest["cov"]) / 60,
        "quiet_features": (ended - newest["ft"]) / 60,
    }


def keep(binary, name, length):
    """Chooses the inputs that together reach all code that has been reached, small ones first, for the kept corpus."""
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        chosen, kept = pathlib.Path(folder) / "chosen", pathlib.Path(folder) / "kept"
        chosen.mkdir()
        unpack(name, kept)
        merge = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={length}", f"-timeout={HANG_S}"]
        process = engine(binary, name, [*merge, str(chosen), str(kept), str(BUILT / "corpus" / name)])
        log = process.stderr.read()
        if process.wait() != 0:
            sys.exit(f"{log}\ncannot choose the inputs of {name}")
        lines, size = [], 0
        for data in sorted((path.read_bytes() for path in chosen.iterdir()), key=len):
            size += 2 * len(data) + 1
            if data and size <= KEPT_BYTES:
                lines.append(data.hex() + "\n")
    (HERE / "corpus" / name).write_text("".join(sorted(lines)))
    print(f"{name}: {len(lines)} inputs are kept, {sum(map(len, lines))} bytes", flush=True)


def row(ran):
    return (
        f"| `{ran['name']}` | {ran['minutes']:.0f} | {ran['executions']:,} | {ran['edges']:,} | {ran['more']:,} "
        f"| {ran['quiet']:.1f} | {ran['quiet_features']:.1f} | {ran['corpus']:,} | {ran['memory']} |"
    )


HEAD = """\
| target | minutes | executions | edges reached | more than the kept corpus | no new edge for the last | no new feature for the last | corpus | MiB |
|---|---|---|---|---|---|---|---|---|"""


def version():
    package = subprocess.check_output(["cargo", "pkgid"], cwd=ROOT, text=True).strip()
    return re.sub(".*[#@]", "", package)


def write(rows):
    RESULT.write_text(
        f"Made by `tests/run fuzz` on {datetime.datetime.now(datetime.timezone.utc):%F}: hapax {version()} with debug "
        f"assertions and overflow checks, libFuzzer, {os.cpu_count()} cores.\n\n"
        "No target crashed, hung, or asked for more memory than its input warrants. An edge is a step from one place of "
        "the compiled code to another, of hapax and of the crates it is built with; a feature is an edge and roughly how "
        "often one input took it. Times are minutes.\n\n" + HEAD + "\n" + "\n".join(map(row, rows)) + "\n"
    )


def main():
    lengths = targets()
    parser = argparse.ArgumentParser(prog="tests/run fuzz")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each target (10)")
    parser.add_argument("--keep", action="store_true", help="choose the kept corpora anew afterwards")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all: " + ", ".join(lengths))
    asked = parser.parse_args()
    if unknown := [name for name in asked.targets if name not in lengths]:
        parser.error(f"no target is called {', '.join(unknown)}: there are {', '.join(lengths)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    binary = build()
    rows = []
    print(HEAD, flush=True)
    for name in asked.targets or lengths:
        if asked.minutes > 0:
            rows.append(fuzz(binary, name, lengths[name], asked.minutes))
            print(row(rows[-1]), flush=True)
    if asked.keep:
        for name in asked.targets or lengths:
            keep(binary, name, lengths[name])
    if not asked.targets and asked.minutes >= MINUTES:
        write(rows)


if __name__ == "__main__":
    main()
