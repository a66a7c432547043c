"""Charts, rendered by Helm: their scenarios are the files ci/*-values.yaml beside each chart."""

import difflib
import os
import shutil
import subprocess
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "target" / "tests"
NAMESPACE = "team"
# An API server offers this; what charts render without a cluster depends on it.
API_VERSIONS = [
    "monitoring.coreos.com/v1",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
    "grafana.integreatly.org/v1beta1",
    "grafana.integreatly.org/v1beta1/GrafanaDashboard",
    "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",
]


class Refused(Exception):
    """Helm ended with an error, which this is the text of."""


@dataclass(frozen=True)
class Scenario:
    """Values that a chart is rendered with."""

    chart: str
    values: Path | None

    def __str__(self):
        return f"{self.chart} {self.values.name.removesuffix('-values.yaml') if self.values else 'default'}"


def helm(*arguments, program=None):
    """The output of helm, or Refused."""
    program = program or os.environ.get("HELM") or INSTALLED / "helm"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def charts():
    """The charts of this repository and the application that stands for a user's, as folders below ROOT."""
    return sorted(str(chart.parent.relative_to(ROOT)) for chart in [*ROOT.glob("charts/*/Chart.yaml"), ROOT / "tests/charts/app/Chart.yaml"])


def is_library(chart):
    return yaml.safe_load((ROOT / chart / "Chart.yaml").read_text()).get("type") == "library"


def scenarios(chart):
    """Its defaults, where they are enough to render it, and every file of ci/."""
    return [Scenario(chart, None), *(Scenario(chart, values) for values in sorted((ROOT / chart / "ci").glob("*-values.yaml")))]


def applications():
    return [chart for chart in charts() if not is_library(chart)]


class Workshop:
    """A copy of the charts with their dependencies built, so that nothing is written beside the sources."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="hapax-charts-")
        self.root = Path(self._folder.name)
        self._rendered = {}
        for chart in charts():
            ignore = shutil.ignore_patterns("*.tgz", "Chart.lock")
            shutil.copytree(ROOT / chart, self.root / chart, ignore=ignore)
        for chart in charts():
            helm("dependency", "build", self.root / chart)

    def chart(self, chart):
        return self.root / chart

    def lint(self, scenario, program=None):
        return helm("lint", "--strict", self.chart(scenario.chart), *_values(scenario), program=program)

    def template(self, scenario, *arguments, release="shop", program=None):
        """The text that Helm renders."""
        offered = [part for version in API_VERSIONS for part in ("--api-versions", version)]
        return helm(
            "template", release, self.chart(scenario.chart), "--namespace", NAMESPACE, "--kube-version", "1.34.4",
            *offered, *_values(scenario), *arguments, program=program,
        )  # fmt: skip

    def render(self, scenario, *arguments, **named):
        """The objects that Helm renders."""
        text = scenario.values.read_text() if scenario.values else ""
        key = (scenario, text, arguments, tuple(sorted(named.items())))
        if key not in self._rendered:
            self._rendered[key] = self.template(scenario, *arguments, **named)
        return [document for document in yaml.safe_load_all(self._rendered[key]) if document]

    def close(self):
        self._folder.cleanup()


class Case(unittest.TestCase):
    """Tests that render in one workshop."""

    @classmethod
    def setUpClass(cls):
        cls.workshop = Workshop()
        cls.addClassCleanup(cls.workshop.close)


def check_kept(test, path, rendered):
    """What is rendered is what the golden file has, which HAPAX_TESTS_WRITE=1 writes anew."""
    if os.environ.get("HAPAX_TESTS_WRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(rendered)
    kept = path.read_text() if path.exists() else ""
    difference = difflib.unified_diff(kept.splitlines(), rendered.splitlines(), str(path), "rendered", lineterm="")
    test.assertEqual("\n".join(difference), "")


def _values(scenario):
    return ["--values", scenario.values] if scenario.values else []


def pod_templates(document):
    """Every Pod that an object is or makes, as (metadata, spec)."""
    found = []
    if document["kind"] == "Pod":
        found.append((document["metadata"], document["spec"]))
    elif document["kind"] == "CronJob":
        template = document["spec"]["jobTemplate"]["spec"]["template"]
        found.append((template.get("metadata", {}), template["spec"]))
    elif isinstance(document.get("spec"), dict) and "template" in document["spec"]:
        template = document["spec"]["template"]
        found.append((template.get("metadata", {}), template["spec"]))
    return found
