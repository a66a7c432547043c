"""What queries name, and what hapax exports: compared without a Prometheus."""
import re

# What Prometheus and its targets add to every series.
OF_TARGETS = {"cluster", "env", "namespace", "job", "pod", "instance", "container", "endpoint"}
SUFFIXES = ("_bucket", "_sum", "_count")


class Exported:
    """Label names and values by metric, from the texts of /metrics."""

    def __init__(self, *scrapes):
        self.labels = {}
        for line in (line for text in scrapes for line in text.splitlines() if line and not line.startswith("#")):
            name, labels = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+", line).groups()
            known = self.labels.setdefault(name, {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""):
                known.setdefault(label, set()).add(value)


def selectors(query):
    """The metrics that a query names, each with its matchers."""
    for found in re.finditer(r"(?<![\w:])((?:\w+:)?(?:hapax|process)_[\w:]+)(?:\{([^}]*)\})?", query):
        yield found[1], re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', found[2] or "")


def groupings(query):
    return {label for found in re.finditer(r"\b(?:by|without|on) \(([^)]*)\)", query) for label in found[1].split(", ")}


def complaints(query, exported, recorded=()):
    """What of the query is not there to be asked for."""
    found, labels = [], set(OF_TARGETS) | {"le"}
    for name, matchers in selectors(query):
        if name in recorded:
            continue
        if name not in exported.labels:
            found.append(f"no metric {name}")
            continue
        known = exported.labels[name]
        labels |= known.keys()
        for label, operator, value in matchers:
            if label in OF_TARGETS or label == "topic":
                continue
            if label not in known:
                found.append(f"{name} has no label {label}")
                continue
            pattern = re.escape(value) if operator in ("=", "!=") else value
            for choice in alternatives(pattern):
                if not any(re.fullmatch(choice, had) for had in known[label]):
                    found.append(f"{name} has no {label} like {choice}")
    return found + [f"nothing has a label {label}" for label in sorted(groupings(query) - labels) if label]


def alternatives(pattern):
    return pattern.split("|") if "(" not in pattern else [pattern]
