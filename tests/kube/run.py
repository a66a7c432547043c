"""The charts on a real API server. Called by tests/run kube, with names of parts for a run that writes nothing."""

import datetime
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "charts"))

import machinery  # noqa: E402
import rendering  # noqa: E402

PARTS = ["scenarios", "upgrade", "injection"]
RESULT = rendering.ROOT / "tests" / "results" / "kube.md"


def main(wanted):
    unknown = set(wanted) - set(PARTS)
    if unknown:
        sys.exit(f"tests/run kube has no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    try:
        suite = unittest.defaultTestLoader.loadTestsFromNames(f"test_{part}" for part in wanted or PARTS)
        outcome = unittest.TextTestRunner(verbosity=2).run(suite)
        if not wanted and outcome.wasSuccessful():
            RESULT.write_text(report(outcome.testsRun))
    finally:
        machinery.close()
    sys.exit(0 if outcome.wasSuccessful() else 1)


def report(tests):
    etcd, server = machinery.cluster().versions()
    helms = " and ".join(machinery.helm_version(version) for version in machinery.HELMS)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=rendering.ROOT, capture_output=True, text=True).stdout.strip()
    lines = [
        f"Made by `tests/run kube` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} at {commit}: kube-apiserver {server} and etcd {etcd}, built from",
        f"their Go modules, Helm {helms}; {tests} tests, all passed. There is no kubelet and no controller: Pods are accepted, and never",
        "run. What a node does is modelled by `tests/charts/test_node.py`.",
        "",
        "## Scenarios: server-side dry run where Pod Security *restricted* is enforced and every warning is an error",
        "",
        "| chart, scenario | objects | Pods that they are or make | Helm |",
        "|---|---|---|---|",
    ]
    for scenario in dict.fromkeys(row[1] for row in machinery.rows["scenarios"]):
        rows = [row for row in machinery.rows["scenarios"] if row[1] == scenario]
        objects, pods = ("/".join(map(str, sorted({row[place] for row in rows}))) for place in (2, 3))
        lines.append(f"| {scenario} | {objects} | {pods} | {', '.join(sorted({row[0] for row in rows}))} |")
    lines += [
        "",
        "## Upgrade: installed, upgraded to a later version with other labels and another drain, removed; every name and selector stayed",
        "",
        "| scenario | objects | Helm before → after |",
        "|---|---|---|",
    ]
    for scenario in dict.fromkeys(row[2] for row in machinery.rows["upgrade"]):
        rows = [row for row in machinery.rows["upgrade"] if row[2] == scenario]
        lines.append(f"| {scenario} | {rows[0][3]} | {', '.join(f'{row[0]} → {row[1]}' for row in sorted(rows))} |")
    lines += ["", "## Injection: by MutatingAdmissionPolicy v1beta1, which Helm found by itself", "", "| installed with | shown |", "|---|---|"]
    lines += [f"| {values} | {shown} |" for values, shown in machinery.rows["injection"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
