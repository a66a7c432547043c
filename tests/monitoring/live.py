"""One run: a real Prometheus scrapes hapax in front of a real Kafka, first in health, then while everything goes wrong.

    python3 live.py      the run, written to tests/results/monitoring.md and config/grafana/dashboard.svg
"""
import contextlib
import math
import os
import re
import subprocess
import time

import grafana
import picture
import scenarios
import world

# Rules look back by so much at most, on their faster clock, but for the hours of HapaxErrorBudgetBurn.
SETTLED = 8
# The longest that an alert may take; most need a third of it.
PATIENCE = 120
RATE_INTERVAL = "5s"
# The three whose cause is there from the start.
FROM_THE_START = {"certificate": {"HapaxCertificateExpiring"}, "development": {"HapaxDevUpstreamInUse"}, "login": {"HapaxUpstreamLoginRefused", "HapaxUpstreamUnreachable"}}


class Run:
    """What came of it."""

    def __init__(self):
        self.started = self.ready = time.time()
        self.in_health, self.fired, self.first, self.failures = {}, {}, {}, {}
        self.series, self.rejected, self.annotations, self.asked, self.quiet_panels = {}, [], [], {}, {}
        self.picture = ""

    def missing(self, scenario):
        return scenario.alerts - self.fired.get(scenario.name, set())

    def unexpected(self, scenario):
        return self.fired.get(scenario.name, set()) - scenario.alerts - scenario.besides - scenarios.BUSY


def run():
    """Everything, in a minute or two."""
    told = Run()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(world.folder())
        kafka = world.Kafka(folder)
        stack.callback(kafka.end)
        kafka.make(scenarios.TOPICS + scenarios.CROWD)
        prometheus = world.Prometheus(folder)
        stack.callback(prometheus.end)
        made = []
        for scenario in scenarios.ALL:
            made.append(scenario(folder, kafka))
            stack.callback(made[-1].end)
        prometheus.show([scenario.hapax for scenario in made])
        world.await_until("every hapax to be scraped", 60, lambda: len(prometheus.query("up == 1")) == len(made))
        told.ready = time.time()
        watch(prometheus, told.in_health, told.first, SETTLED, lambda: False)
        for scenario in made:
            scenario.thread.start()
        watch(prometheus, told.fired, told.first, PATIENCE, lambda: not any(told.missing(scenario) for scenario in made))
        # What fires besides would have fired by now, or would not.
        watch(prometheus, told.fired, told.first, SETTLED, lambda: False)
        told.failures = {scenario.name: repr(scenario.failed) for scenario in made if scenario.failed}
        collect(prometheus, told)
    return told


def watch(prometheus, seen, first, seconds, enough):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not enough():
        for pod, alerts in prometheus.firing().items():
            seen.setdefault(pod, set()).update(alerts)
            for alert in alerts:
                first.setdefault((pod, alert), time.time())
        time.sleep(world.SCRAPE_EVERY)


def collect(prometheus, told):
    end, span = time.time(), f"{int(time.time() - told.started) + 1}s"
    for sample in prometheus.query(f"max_over_time(scrape_samples_scraped[{span}])"):
        told.series[sample["metric"]["pod"]] = int(sample["value"][1])
    # Once up, always up: a scrape that is rejected, for its size or its text, is not.
    told.rejected = sorted(sample["metric"]["pod"] for sample in prometheus.query(f"min_over_time(up[{span}]) == 0 and on (pod) max_over_time(up[{span}]) == 1"))
    told.annotations = [alert["annotations"] for alert in prometheus.api("alerts")["alerts"]]
    sources = [("prometheus", prometheus.address)]

    def values_of(selector, label):
        return prometheus.api(f"label/{label}/values", **{"match[]": selector})

    for name in grafana.NAMES:
        for way, load in grafana.WAYS.items():
            told.asked[name, way] = ask(prometheus, load(name), sources, values_of, told.started, end)
    told.picture = draw(prometheus, sources, values_of, told.started, end)


def ask(prometheus, dashboard, sources, values_of, start, end):
    """How many series with a value the queries of each panel have, by panel and query."""
    resolver = grafana.Resolver(dashboard, sources, values_of)
    found = {}
    for panel in grafana.panels(dashboard):
        for target in panel.get("targets", []):
            assert resolver.uid(target["datasource"]) == prometheus.address
            series = answer(prometheus, resolver, target, start, end)
            found[panel["title"], target["expr"]] = sum(any(not math.isnan(value) for _, value in points) for _, points in series)
    return found


def answer(prometheus, resolver, target, start, end):
    """[(name, [(time, value)])] as Grafana would show them."""
    query = resolver.text(target["expr"], __rate_interval=RATE_INTERVAL)
    if target["instant"]:
        series = [(sample["metric"], [sample["value"]]) for sample in prometheus.query(query, time=end)]
    else:
        series = [(sample["metric"], sample["values"]) for sample in prometheus.range(query, start, end, "1s")]
    return [(re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found[1], ""), target["legendFormat"]),
             [(float(at), float(value)) for at, value in points]) for metric, points in series]


# What the picture shows of the dashboard: the first row, and the panels of others in which most is to be seen.
DRAWN = {
    "Overview": ["Duplicates", "Absorbed in 24 h", "Gaps in 1 h", "Fenced in 1 h", "Written twice in 24 h", "Failed requests", "Versions", "Verdicts"],
    "Duplicates": ["Absorbed by topic", "Absorbed or forwarded", "Came again under a new epoch"],
    "Order and fencing": ["Errors of brokers", "Missing records", "Fenced producers"],
    "Traffic": ["Latency, p99", "Overhead, p99", "Disconnects"],
}


def draw(prometheus, sources, values_of, start, end):
    dashboard = grafana.by_file("hapax.json")
    resolver = grafana.Resolver(dashboard, sources, values_of)
    by_title = {panel["title"]: panel for panel in grafana.panels(dashboard)}
    rows, answers = {}, {}
    for row, titles in DRAWN.items():
        rows[row] = [dict(by_title[title]) for title in titles]
        if row != "Overview":
            for at, panel in enumerate(rows[row]):
                panel["gridPos"] = {"x": 8 * at, "y": 0, "w": 8, "h": 6}
        for panel in rows[row]:
            found = answers[panel["id"]] = []
            for target in panel["targets"]:
                points = answer(prometheus, resolver, target, start, end)
                found += [(name, [(at, value) for at, value in one if not math.isnan(value)]) for name, one in points]
    # Nothing is scraped while Kafka starts.
    start = min(at for found in answers.values() for _, points in found for at, _ in points)
    return picture.draw(rows, answers, start, end, f"Drawn by tests/monitoring/picture.py, not by Grafana, from the Prometheus of a test run of "
                        f"{time.strftime('%Y-%m-%d', time.gmtime())}: {len(scenarios.ALL)} hapax before one Kafka, while faults are provoked.")


def page(told):
    """The result as Markdown."""
    version = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    prometheus = re.search(r"version (\S+?)[, ]", version.stdout + version.stderr)[1]
    kafka = re.search(r"^KAFKA_VERSION=(\S+)", (world.ROOT / "tests/lib/packages.sh").read_text(), re.M)[1]
    hapax = subprocess.run([world.hapax_binary(), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    lines = [
        "# Monitoring, live", "",
        f"Made by `tests/run monitoring` on {time.strftime('%Y-%m-%d', time.gmtime())}: Prometheus {prometheus} scrapes {len(scenarios.ALL)} processes of hapax {hapax} "
        f"in front of Kafka {kafka} every {world.SCRAPE_EVERY:g} s, first in health, then while each meets what its row says. Windows and holds of the rules are "
        f"{world.FASTER} times shorter (an hour is a minute), thresholds as they are; `promtool test rules` holds the real ones.", "",
        "| what happens | alerts that fired | after | besides, as it must or may | series |", "|---|---|--:|---|--:|"]
    for scenario in scenarios.ALL:
        name = scenario.__name__.lower()
        fired = told.fired.get(name, set())
        wanted = sorted(fired & scenario.alerts)
        after = max((told.first[name, alert] - told.started for alert in wanted), default=None)
        lines.append(f"| {scenario.__doc__.strip().rstrip('.')} | {', '.join(wanted) or 'none'} | {f'{after:.0f} s' if after else ''} "
                     f"| {', '.join(sorted(fired - scenario.alerts))} | {told.series.get(name, 0)} |")
    early = ", ".join(sorted({alert for alerts in told.in_health.values() for alert in alerts}))
    lines += ["", f"After: seconds since the run began; everything was up and scraped after {told.ready - told.started:.0f}, and went wrong {SETTLED} later. Before that only {early} "
              "fired, whose cause was there from the start."]
    if any("HapaxOverheadHigh" in told.fired.get(scenario.__name__.lower(), set()) - scenario.alerts for scenario in scenarios.ALL):
        lines.append(f"HapaxOverheadHigh besides is true: {os.cpu_count()} cores had all these processes and other work to do, so that hapax did wait for one. "
                     "That it is silent otherwise is left to promtool's tests.")
    lines.append("")
    for name in grafana.NAMES:
        asked = told.asked[name, "file"]
        lines.append(f"{name}: {len(asked)} queries of {len({title for title, _ in asked})} panels, each with data, and alike when it is loaded by file, ConfigMap and import.")
    rejected = ", ".join(told.rejected)
    lines += ["", f"Scrapes that failed once a process was up: of {rejected or 'none'}" + (" (it ended)." if rejected == "drained" else "."), ""]
    return "\n".join(lines)


def complaints(told):
    """What is not as it should be."""
    found = [f"{name}: {error}" for name, error in told.failures.items()]
    for scenario in scenarios.ALL:
        scenario.name = scenario.__name__.lower()
        found += [f"{scenario.name}: {alert} did not fire" for alert in sorted(told.missing(scenario))]
        found += [f"{scenario.name}: {alert} fired" for alert in sorted(told.unexpected(scenario))]
        early = told.in_health.get(scenario.name, set()) - FROM_THE_START.get(scenario.name, set()) - scenarios.BUSY
        found += [f"{scenario.name}: {alert} fired in health" for alert in sorted(early)]
    found += [f"{pod}: {count} series" for pod, count in told.series.items() if count > 2000]
    # A process that ends cannot be scraped.
    found += [f"{pod}: a scrape failed" for pod in told.rejected if pod != "drained"]
    found += [f"an alert says {text}" for said in told.annotations for text in said.values() if "<error" in text or "<no value>" in text]
    for (name, way), asked in told.asked.items():
        found += [f"{name} by {way}: {title} has no data: {query}" for (title, query), series in asked.items() if not series]
        if asked.keys() != told.asked[name, "file"].keys():
            found.append(f"{name} asks otherwise by {way}")
    return found


def main():
    told = run()
    wrong = complaints(told)
    for line in wrong:
        print(line)
    if wrong:
        raise SystemExit(1)
    (world.ROOT / "tests/results/monitoring.md").write_text(page(told))
    (world.ROOT / "config/grafana/dashboard.svg").write_text(told.picture)
    print(page(told))


if __name__ == "__main__":
    os.chdir(world.ROOT)
    main()
