#!/usr/bin/env python3
"""Fuzzes hapax: `tests/run fuzz [--minutes N] [--jobs N] [--idle] [--keep] [--write] [TARGET...]`.

Builds the package beside this file with the coverage that stable rustc can write and runs libFuzzer on the targets, each
for ten minutes, and longer where the machine gave it less than half of them. A crash, a hang or use of too much memory
ends a target's run, and the program with an error once the others have run. What was found goes on living below
target/fuzz/corpus; with --keep what reaches more than the kept corpora do is added to them, as one hexadecimal line an
input. What a run did is kept below target/fuzz/ran; --write makes tests/results/fuzz.md of the newest run of every target,
and leaves the rows of those that have not run since it was written.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/fuzz"
BUILT = ROOT / "target/fuzz"
RAN = BUILT / "ran"
RESULT = ROOT / "tests/results/fuzz.md"
FIGURES = RESULT.with_suffix(".json")
# What cargo-fuzz sets for a build without a sanitizer: hapax has no unsafe code, so that one would find nothing.
COVERAGE = ["-Cpasses=sancov-module"] + [
    f"-Cllvm-args=-sanitizer-coverage-{what}"
    for what in ("level=4", "inline-8bit-counters", "pc-table", "trace-compares")
]
# A target asks for much less, and says so itself; these hold where it is too late for that.
MEMORY_MIB = 1024
ADDRESS_SPACE = 8 << 30
# One input, on a machine that may have much else to do.
HANG_S = 300
# Of a kept corpus, as text.
KEPT_BYTES = 32 << 10
# Who reads nothing new for so long has read enough,
MINUTES = 10
# if the processor was its own for half of it; it waits at most so many times as long for that (--patience).
SHARE = 0.5
PATIENCE = 3
# The end of a run, of which the page says what was new in it.
LAST_MINUTES = 2


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
    # A later build does not change what is running.
    binary = BUILT / f"hapax-fuzz-{os.getpid()}"
    shutil.copy2(BUILT / host / "release/hapax-fuzz", binary)
    return binary


def commit():
    """The code that is built: its commit, marked where files have changed since."""
    said = subprocess.check_output(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, text=True)
    return said.strip()


def unpack(name, folder):
    """The kept corpus as the files that libFuzzer reads."""
    folder.mkdir(parents=True)
    kept = HERE / "corpus" / name
    for number, line in enumerate(kept.read_text().split() if kept.exists() else []):
        (folder / f"kept-{number}").write_bytes(bytes.fromhex(line))


def engine(binary, name, arguments):
    process = subprocess.Popen(
        [binary, *arguments],
        env=os.environ | {"TARGET": name, "RUST_BACKTRACE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    # It would write one at every crash that is found.
    resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
    return process


def processor_seconds(pid):
    """What a process has used so far; `None` once it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def be_idle():
    """What others do on this machine goes first."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    group = pathlib.Path("/proc/self/autogroup")
    if group.exists() and os.getsid(0) == os.getpid():
        group.write_text("19")


def stop_in_time(process, minutes, patience):
    """Asks the engine to end once it has had its minutes, and enough of the processor."""
    begun = time.monotonic()
    while (used := processor_seconds(process.pid)) is not None:
        elapsed = time.monotonic() - begun
        if elapsed >= minutes * 60 and (used >= SHARE * minutes * 60 or elapsed >= patience * minutes * 60):
            os.kill(process.pid, signal.SIGUSR1)
            return
        time.sleep(0.5)


def fuzz(binary, code, name, length, minutes, patience):
    """Runs one target; gives what it did."""
    found = BUILT / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    artifacts = BUILT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    kept = pathlib.Path(tempfile.mkdtemp(dir=BUILT)) / name
    unpack(name, kept)
    arguments = [
        f"-max_len={length}",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-report_slow_units={HANG_S}",
        "-print_final_stats=1",
        "-detect_leaks=0",
        f"-artifact_prefix={artifacts}/{name}-",
        str(found),
        str(kept),
    ]
    begun = time.monotonic()
    # Each time that something was reached for the first time: when, the edges, the features, the inputs that are kept.
    news = [(begun, 0, 0, 0)]
    begin = 0
    stats, log = {}, []
    process = engine(binary, name, arguments)
    threading.Thread(target=stop_in_time, args=(process, minutes, patience), daemon=True).start()
    for line in process.stderr:
        log = (log + [line])[-400:]
        if event := re.match(r"#\d+\s+(\w+)\s+cov: (\d+) ft: (\d+) corp: (\d+)", line):
            reached = tuple(int(event[group]) for group in (2, 3, 4))
            if reached[:2] != news[-1][1:3]:
                news.append((time.monotonic(), *reached))
            if event[1] == "INITED":
                begin = reached[0]
        elif stat := re.match(r"stat::(\w+):\s+(\d+)", line):
            stats[stat[1]] = int(stat[2])
    ended = time.monotonic()
    shutil.rmtree(kept.parent)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.stderr.write("".join(log))
        print(f"{name} failed: the input is in {artifacts}; add it as a line to tests/fuzz/corpus/{name}", flush=True)
    newest = lambda column: (ended - next(new[0] for new in news if new[column] == news[-1][column])) / 60
    earlier = [new for new in news if new[0] <= ended - LAST_MINUTES * 60][-1:] or news[:1]
    ran = {
        "name": name,
        "commit": code,
        "ended": f"{datetime.datetime.now(datetime.timezone.utc):%F %R}",
        "clean": process.returncode == 0,
        "minutes": (ended - begun) / 60,
        "processor": usage.ru_utime + usage.ru_stime,
        "executions": stats.get("number_of_executed_units", 0),
        "edges": news[-1][1],
        "more": news[-1][1] - begin,
        "features": news[-1][2],
        "corpus": news[-1][3],
        "memory": stats.get("peak_rss_mb", 0),
        "quiet": newest(1),
        "quiet_features": newest(2),
        "last_edges": news[-1][1] - earlier[0][1],
        "last_features": news[-1][2] - earlier[0][2],
    }
    RAN.mkdir(exist_ok=True)
    (RAN / f"{name}.json").write_text(json.dumps(ran, indent=1))
    print(row(ran), flush=True)
    return ran


def keep(binary, name, length):
    """Chooses the inputs that together reach all code that has been reached, small ones first, for the kept corpus."""
    (BUILT / "corpus" / name).mkdir(parents=True, exist_ok=True)
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
        f"| `{ran['name']}` | {ran['minutes']:.1f} | {ran['processor']:.0f} | {ran['executions']:,} | {ran['edges']:,} "
        f"| {ran['more']:,} | {ran['quiet']:.1f} | {ran['last_edges']:,} | {ran['last_features']:,} of {ran['features']:,} "
        f"| {ran['corpus']:,} | {ran['memory']} | {'none' if ran['clean'] else 'FAILED'} | {ran['commit']} |"
    )


HEAD = f"""\
| target | minutes | processor s | executions | edges reached | more than the kept corpus | no new edge for the last | \
new edges in the last {LAST_MINUTES} | new features in the last {LAST_MINUTES} | inputs | MiB | findings | commit |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def version():
    package = subprocess.check_output(["cargo", "pkgid"], cwd=ROOT, text=True).strip()
    return re.sub(".*[#@]", "", package)


def write(names):
    """The page, of the newest run of every target."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    known |= {path.stem: json.loads(path.read_text()) for path in RAN.glob("*.json")}
    rows = [known[name] for name in names if name in known]
    missing = [name for name in names if name not in known]
    FIGURES.write_text(json.dumps({ran["name"]: ran for ran in rows}, indent=1) + "\n")
    ended = sorted(ran["ended"] for ran in rows)
    failed = [ran["name"] for ran in rows if not ran["clean"]]
    short = [ran["name"] for ran in rows if ran["minutes"] < MINUTES]
    starved = [ran["name"] for ran in rows if ran["processor"] < SHARE * MINUTES * 60]
    listed = lambda names: ", ".join(f"`{name}`" for name in names) or "none"
    RESULT.write_text(
        f"Made by `tests/run fuzz` of runs that ended between {ended[0]} and {ended[-1]} UTC: hapax {version()} with "
        f"debug assertions and overflow checks, libFuzzer, {os.cpu_count()} cores, at the commit that each row names.\n\n"
        f"Targets: {len(rows)}. Ran {sum(ran['minutes'] for ran in rows):,.0f} minutes and "
        f"{sum(ran['executions'] for ran in rows):,} inputs in all, for {sum(ran['processor'] for ran in rows):,.0f} s of "
        f"a processor. Crashed, hung, or asked for more memory than their input warrants: {listed(failed)}. Ran for less "
        f"than {MINUTES} minutes: {listed(short)}. Had the processor for less than {SHARE * MINUTES * 60:.0f} s: "
        f"{listed(starved)}. Did not run: {listed(missing)}.\n\n"
        "An edge is a step from one place of the compiled code to another, of hapax and of the crates it is built with; a "
        "feature is an edge and roughly how often one input took it. Times are minutes but "
        "for the processor's.\n\n" + HEAD + "\n" + "\n".join(map(row, rows)) + "\n"
    )


def main():
    lengths = targets()
    parser = argparse.ArgumentParser(prog="tests/run fuzz")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each target (10)")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at once (1)")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="how often as long it may take for its share (3)")
    parser.add_argument("--idle", action="store_true", help="at the lowest priority")
    parser.add_argument("--keep", action="store_true", help="choose the kept corpora anew afterwards")
    parser.add_argument("--write", action="store_true", help="write the page; with --minutes 0 of what has run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all: " + ", ".join(lengths))
    asked = parser.parse_args()
    if unknown := [name for name in asked.targets if name not in lengths]:
        parser.error(f"no target is called {', '.join(unknown)}: there are {', '.join(lengths)}")
    chosen = asked.targets or list(lengths)
    BUILT.mkdir(parents=True, exist_ok=True)
    failed = []
    if asked.minutes > 0 or asked.keep:
        code = commit()
        binary = build()
        print(HEAD, flush=True)
    if asked.idle:
        be_idle()
    if asked.minutes > 0:
        with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
            runs = [pool.submit(fuzz, binary, code, name, lengths[name], asked.minutes, asked.patience) for name in chosen]
            failed = [run.result()["name"] for run in runs if not run.result()["clean"]]
    if asked.keep:
        for name in chosen:
            keep(binary, name, lengths[name])
    if asked.minutes > 0 or asked.keep:
        binary.unlink()
    if asked.write:
        write(list(lengths))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
