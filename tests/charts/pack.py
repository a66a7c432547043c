#!/usr/bin/env python3
"""Copies what belongs into charts/hapax/files from config: a chart cannot read outside of itself.

    tests/charts/pack.py            copies what differs, and removes what has gone
    tests/charts/pack.py --check    changes nothing, and fails where something differs
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "charts" / "hapax" / "files"


def wanted():
    """The bytes of each file that the chart has to have."""
    rules = {FILES / name: ROOT / "config" / "prometheus" / name for name in ("rules.yaml", "alerts.yaml")}
    grafana = (ROOT / "config" / "grafana").glob("*.json")
    dashboards = {FILES / "dashboards" / path.name: path for path in grafana}
    return {copy: path.read_bytes() for copy, path in {**rules, **dashboards}.items()}


def stale():
    """Files that differ from what they are copies of, or are copies of nothing."""
    files = wanted()
    found = {path for path in FILES.rglob("*") if path.is_file()}
    differ = {path for path, content in files.items() if not path.exists() or path.read_bytes() != content}
    return sorted(differ | (found - files.keys()))


def main(arguments):
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__)
        return 64
    differing = stale()
    files = wanted()
    for path in differing:
        print(f"{path.relative_to(ROOT)} {'is stale' if check else 'copied' if path in files else 'removed'}")
        if check:
            continue
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[path])
        else:
            path.unlink()
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
