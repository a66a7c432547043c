#!/usr/bin/env python3
"""Puts hapax's snippets into public charts and looks at what these make of them.

    tests/charts/public.py FOLDER            prints what came of it
    tests/charts/public.py FOLDER --write    into tests/results/charts.md

FOLDER has the charts, each in a folder of its own name with a file REVISION in it, which says where it comes from. No package
registry of the tests has them, so this is no part of tests/run: they are fetched by hand (CHARTS below says from where), and
none of them is committed here.

A chart takes a snippet where the container that it renders is, field by field, the one that was given, at the place where it
was meant to be, and where Kubernetes' own schemas find nothing wrong with the object around it.
"""

import datetime
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import rendering
import schemas
from generate import hapax

RESULT = rendering.ROOT / "tests" / "results" / "charts.md"


@dataclass
class Chart:
    """A public chart: what it needs to render at all, and what it calls the two keys."""

    source: str
    native: str
    plain: str
    values: dict = field(default_factory=dict)


CHARTS = {
    "opentelemetry-collector": Chart(
        "open-telemetry/opentelemetry-helm-charts, charts/opentelemetry-collector",
        "initContainers",
        "extraContainers",
        {
            "mode": "deployment",
            "image": {"repository": "otel/opentelemetry-collector-contrib"},
            "config": {
                "exporters": {"kafka": {"brokers": ["127.0.0.1:19092"]}},
                "service": {"pipelines": {"logs": {"exporters": ["kafka"]}}},
            },
        },
    ),
    "oauth2-proxy": Chart("oauth2-proxy/manifests, helm/oauth2-proxy", "extraInitContainers", "extraContainers"),
    "vector": Chart(
        "vectordotdev/helm-charts, charts/vector",
        "initContainers",
        "extraContainers",
        {
            "role": "Stateless-Aggregator",
            "service": {"enabled": False},
            "customConfig": {
                "sources": {"logs": {"type": "demo_logs", "format": "json"}},
                "sinks": {
                    "kafka": {
                        "type": "kafka",
                        "inputs": ["logs"],
                        "bootstrap_servers": "127.0.0.1:19092",
                        "topic": "logs",
                        "encoding": {"codec": "json"},
                    }
                },
            },
        },
    ),
    "atlantis": Chart(
        "runatlantis/helm-charts, charts/atlantis",
        "initContainers",
        "extraContainers",
        {"orgAllowlist": "example.com/*", "github": {"user": "u", "token": "t", "secret": "s"}},
    ),
}


def snippet(form):
    command = [hapax(), "snippet", "--upstream=kafka-0.kafka:9092,kafka-1.kafka:9092", "--mode=observe", f"--form={form}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    [containers] = yaml.safe_load(printed).values()
    return containers


def render(folder, values):
    """The objects of a chart. Parts that it switches off by default, and would have to be fetched, are left out."""
    with tempfile.TemporaryDirectory() as copy:
        subprocess.run(["cp", "-r", folder, copy], check=True)
        chart = Path(copy) / folder.name
        described = yaml.safe_load((chart / "Chart.yaml").read_text())
        described.pop("dependencies", None)
        (chart / "Chart.yaml").write_text(yaml.safe_dump(described))
        (chart / "Chart.lock").unlink(missing_ok=True)
        file = Path(copy) / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        text = rendering.helm("template", "shop", chart, "--namespace", "team", "--kube-version", "1.34.4", "--values", file)
    return [document for document in yaml.safe_load_all(text) if document]


def outcome(folder, chart, form):
    """What came of one snippet in one chart, in words."""
    key = chart.native if form == "native" else chart.plain
    given = snippet(form)
    try:
        documents = render(folder, {**chart.values, key: given})
    except rendering.Refused as refused:
        return f"refused: {' '.join(str(refused).split())}"
    found = [(document, spec) for document in documents for _, spec in rendering.pod_templates(document)]
    found = [(document, spec) for document, spec in found if any(c["name"] == "hapax" for c in containers(spec))]
    if len(found) != 1:
        return f"in {len(found)} Pods"
    [(document, spec)] = found
    place = (spec.get("initContainers") or [None])[0] if form == "native" else spec["containers"][-1]
    if place != given[0]:
        return "changed on the way, or at another place"
    faults = schemas.faults(document)
    kind = document["kind"]
    place = "first init container" if form == "native" else "last container"
    return f"untouched, {place} of the {kind}" + (f"; Kubernetes: {faults}" if faults else "")


def containers(spec):
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def report(folder):
    helm = rendering.helm("version", "--short").strip()
    yield "# Snippets in public charts"
    yield ""
    yield (
        f"Made by `tests/charts/public.py FOLDER --write` on {datetime.date.today()}: hapax {hapax_version()}, Helm {helm.split('+')[0]}, "
        "schemas of Kubernetes as the tests pin them. The charts come from no registry that the tests use, so this is made by hand."
    )
    yield ""
    yield "Each container is what `hapax snippet` prints, under the key that the chart has for it. *Untouched*: field by field what"
    yield "was given, in a Pod that Kubernetes' strict schemas find nothing wrong with."
    yield ""
    yield "| chart | from | `--form native` under | came out | `--form plain` under | came out |"
    yield "|---|---|---|---|---|---|"
    for name, chart in CHARTS.items():
        place = folder / name
        version = yaml.safe_load((place / "Chart.yaml").read_text())["version"]
        revision = (place / "REVISION").read_text().strip()
        results = [outcome(place, chart, form) for form in ("native", "plain")]
        yield (
            f"| {name} {version} | {chart.source}, {revision} | `{chart.native}` | {results[0]} "
            f"| `{chart.plain}` | {results[1]} |"
        )


def hapax_version():
    printed = subprocess.run([hapax(), "version"], check=True, capture_output=True, text=True).stdout
    return printed.split()[1]


def main(arguments):
    if not arguments or set(arguments[1:]) - {"--write"}:
        print(__doc__)
        return 64
    text = "\n".join(report(Path(arguments[0]))) + "\n"
    if arguments[1:]:
        RESULT.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
