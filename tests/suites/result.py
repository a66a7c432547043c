"""What a suite gave direct and through hapax, compared test by test, as a page of Markdown."""
import json
import pathlib
import tomllib

from peers import FAIL, PASS, SKIP

ROUTES = ("direct", "hapax")
REASONS = tomllib.loads((pathlib.Path(__file__).parent / "reasons.toml").read_text())
NO_REASON = "**no reason is known**"


class Comparison:
    """One suite: what each test gave, try by try, on either route."""

    def __init__(self, name, title, nodes, reasons=None):
        self.name, self.title, self.nodes = name, title, nodes
        self.reasons = REASONS.get(name, {}) if reasons is None else reasons
        self.tries = {route: {} for route in ROUTES}
        self.metrics, self.log_lines = {}, {}

    def save(self, path):
        metrics = [[*key, value] for key, value in self.metrics.items()]
        told = [self.name, self.title, self.nodes, self.tries, metrics, self.log_lines]
        pathlib.Path(path).write_text(json.dumps(told))

    @classmethod
    def load(cls, path):
        name, title, nodes, tries, metrics, log_lines = json.loads(pathlib.Path(path).read_text())
        comparison = cls(name, title, nodes)
        comparison.tries, comparison.log_lines = tries, log_lines
        comparison.metrics = {(metric, label): value for metric, label, value in metrics}
        return comparison

    def take(self, route, results):
        for test, status in results.items():
            self.tries[route].setdefault(test, []).append(status)

    def unsettled(self):
        """What failed in its last try on either route, unless an earlier one had passed: the suites run it again."""
        return {test for route in ROUTES for test, tries in self.tries[route].items() if FAIL == settled(tries)}

    def tests(self):
        return sorted({test for route in ROUTES for test in self.tries[route]})

    def status(self, route, test):
        tries = self.tries[route].get(test)
        return settled(tries) if tries else "not run"

    def listed(self, holds):
        """The tests of which something holds; one whose own parts are listed already stands for nothing more."""
        found = [test for test in self.tests() if holds(self.status("direct", test), self.status("hapax", test))]
        return [test for test in found if not any(other.startswith(test + "/") for other in found)]

    def differing(self):
        return self.listed(lambda direct, hapax: direct != hapax)

    def failing(self):
        return self.listed(lambda direct, hapax: direct == hapax == FAIL)

    def skipped(self):
        return self.listed(lambda direct, hapax: direct == hapax == SKIP)

    def retried(self):
        """Those that did not always give the same, with their tries."""
        changed = [test for test in self.tests() if any(len(set(self.tries[route].get(test, []))) > 1 for route in ROUTES)]
        return [test for test in changed if not any(other.startswith(test + "/") for other in changed)]

    def reason(self, test):
        return self.reasons.get(test) or self.reasons.get(test.split("/")[0]) or NO_REASON

    def complaints(self):
        """What makes the whole run fail: a difference or a failure that nobody has explained, or nothing having run."""
        complaints = [f"{self.name}: {route} ran no test" for route in ROUTES if not self.tries[route]]
        return complaints + [
            f"{self.name}: {test}: {self.status('direct', test)} direct, {self.status('hapax', test)} through hapax"
            for test in self.differing() + self.failing()
            if self.reason(test) == NO_REASON
        ]

    def count(self, route, status):
        return sum(1 for test in self.tests() if "/" not in test and self.status(route, test) == status)

    def counts(self, route):
        return " / ".join(str(self.count(route, status)) for status in (PASS, FAIL, SKIP))

    def summary(self, route):
        return f"{self.name}, {route}: {self.counts(route)} (pass / fail / skip)"

    def counted(self, metric):
        parts = {label: value for (name, label), value in self.metrics.items() if name == metric}
        return ", ".join(f"{label} {value}" for label, value in sorted(parts.items())) or "none"

    def batches(self):
        return sum(value for (name, _), value in self.metrics.items() if name == "hapax_verdicts_total")


def settled(tries):
    """A test that passed once is one that passes: it runs again only because some try failed."""
    return PASS if PASS in tries else tries[-1]


def page(head, comparisons):
    lines = [
        "# Clients' own test suites, direct and through hapax",
        "",
        f"Made by `tests/run suites` {head}",
        "",
        "Each suite ran against a fresh cluster of its own, first direct, then through a hapax before the same cluster. "
        "Counted are whole tests; their parts are compared too. What failed on either way ran again on both, up to twice: "
        "it counts as passed when one try passed, and is listed.",
        "",
        "| suite | brokers | direct: pass / fail / skip | through hapax: pass / fail / skip | tests that differ | batches that hapax saw |",
        "|---|---|---|---|---|---|",
    ]
    for each in comparisons:
        lines.append(
            f"| {each.title} | {each.nodes} | {each.counts('direct')} | {each.counts('hapax')} | {len(each.differing())} | {each.batches()} |"
        )
    for each in comparisons:
        lines += ["", *section(each)]
    return "\n".join(lines) + "\n"


def section(comparison):
    lines = [f"## {comparison.name}", ""]
    groups = [
        ("Differ", comparison.differing(), lambda test: tries_of(comparison, test) + comparison.reason(test)),
        ("Fail both ways", comparison.failing(), comparison.reason),
        ("Did not give the same in each try", comparison.retried(), lambda test: tries_of(comparison, test) + retry_reason(comparison, test)),
        ("Skipped both ways", comparison.skipped(), comparison.reason),
    ]
    for title, tests, text in groups:
        lines.append(f"{title}: {'none' if not tests else len(tests)}.")
        lines += [f"- `{test}`: {text(test)}" for test in tests]
        lines.append("")
    lines.append(f"hapax counted: verdicts {comparison.counted('hapax_verdicts_total')}; ")
    lines[-1] += f"errors of brokers by code: {comparison.counted('hapax_sequence_errors_total')}."
    told = ", ".join(f"{count} times \"{message}\"" for message, count in sorted(comparison.log_lines.items()))
    lines.append(f"It logged at level warn and above: {told or 'nothing'}.")
    return lines


def tries_of(comparison, test):
    return "".join(f"{route} {', '.join(comparison.tries[route].get(test, ['not run']))}; " for route in ROUTES)


def retry_reason(comparison, test):
    reason = comparison.reason(test)
    return "no pattern known" if reason == NO_REASON else reason
