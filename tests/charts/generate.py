#!/usr/bin/env python3
"""Makes values.schema.json and the tables of README.md of each chart from the comments of its values.yaml.

    tests/charts/generate.py            writes what is stale
    tests/charts/generate.py --check    writes nothing, and fails where something is stale

Needs PyYAML, and hapax itself for the schema of `config`: the program that HAPAX names, or one that was built here.

The comment above a key is its description, and belongs to the schema and to the README. Lines in it that begin with @ are
for the schema alone, each in one line:

    @schema {enum: [a, b]}  is laid over what follows from the default
    @object Probe           an object of Kubernetes, which passes untouched: what is in it is not described here
    @config                 the configuration of hapax, as `hapax config schema` has it
    @like resources         described as this key of hapax-sidecar

A key without a comment is described as the key of hapax-sidecar at the same place is. A map is a section whose keys are
described one by one, unless it is empty or an object of Kubernetes.

README.md has the table of all values between <!-- values:begin --> and <!-- values:end -->. templates/_keys.tpl of
hapax-sidecar comes from config/hapax.yaml: the variable of each key, and which ones need no restart.
"""

import difflib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHARTS = ROOT / "charts"
LIBRARY = "hapax-sidecar"
BEGIN, END = "<!-- values:begin -->", "<!-- values:end -->"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Bad(Exception):
    """values.yaml says something that nothing can be made of."""


@dataclass
class Comment:
    """What stands above a key."""

    description: str = ""
    schema: dict = field(default_factory=dict)
    kind: str = ""  # object or config: not a section
    object: str = ""
    like: str = ""


@dataclass
class Value:
    """A key of values.yaml."""

    path: tuple
    comment: Comment
    default: object
    children: list = field(default_factory=list)

    @property
    def is_section(self):
        return isinstance(self.default, dict) and bool(self.default) and not self.comment.kind


def read_comment(lines, line, column):
    """The comment right above a line, where it is indented as the line is."""
    block = []
    while line > 0 and re.match(rf" {{{column}}}#( |$)", lines[line - 1]):
        line -= 1
        block.insert(0, lines[line][column + 1 :].strip())
    comment, prose = Comment(), []
    for text in block:
        directive = re.match(r"@(\w+)\s*(.*)$", text)
        if not directive:
            prose.append(text)
            continue
        name, rest = directive.groups()
        if name == "schema":
            comment.schema.update(yaml.safe_load(rest))
        elif name == "like":
            comment.like = rest
        elif name in ("object", "config"):
            comment.kind, comment.object = name, rest
        else:
            raise Bad(f"@{name} means nothing")
    comment.description = " ".join(filter(None, prose))
    return comment


def read_values(path, library=None):
    """The keys of a values.yaml as a tree. What `library` describes need not be described again."""
    text = path.read_text()
    lines = text.splitlines()
    known = {value.path: value for value in every(library or [])}

    def read(node, default, above):
        values = []
        for key, child in node.value:
            here = (*above, key.value)
            comment = read_comment(lines, key.start_mark.line, key.start_mark.column)
            value = Value(here, comment, default[key.value])
            like = tuple(comment.like.split(".")) if comment.like else here
            other = known.get(like)
            if comment.like and not other:
                raise Bad(f"{path}: {dotted(here)}: {LIBRARY} has no value {comment.like}")
            if other:
                inherit(comment, other.comment)
                for below in every(other.children):
                    known.setdefault((*here, *below.path[len(like) :]), below)
            if value.is_section:
                value.children = read(child, value.default, here)
            elif not comment.description:
                raise Bad(f"{path}: {dotted(here)} has no comment")
            values.append(value)
        return values

    try:
        return read(yaml.compose(text), yaml.safe_load(text), ())
    except Bad as error:
        raise Bad(f"{path}: {error}") from error


def inherit(comment, other):
    comment.description = comment.description or other.description
    comment.schema = {**other.schema, **comment.schema}
    comment.kind, comment.object = comment.kind or other.kind, comment.object or other.object


def every(values):
    for value in values:
        yield value
        yield from every(value.children)


def dotted(path):
    return ".".join(path)


def schema_of(chart, values, config):
    """The whole schema of a chart."""
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    properties = {value.path[-1]: schema_of_value(value, config) for value in values}
    # Helm puts them beside the chart's own values.
    beside = ["global", *(d.get("alias", d["name"]) for d in described.get("dependencies", []))]
    properties.update({name: {"type": "object"} for name in beside if name not in properties})
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Values of the chart {described['name']}",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def schema_of_value(value, config):
    comment = value.comment
    schema = {"description": comment.description} if comment.description else {}
    if value.is_section:
        children = {child.path[-1]: schema_of_value(child, config) for child in value.children}
        schema.update(type="object", additionalProperties=False, properties=children)
    elif comment.kind == "config":
        schema = {**config, **schema}
    elif value.default is None and "type" not in comment.schema:
        pass
    else:
        schema.update(type=TYPES.get(type(value.default), "string"), default=value.default)
    schema.update(comment.schema)
    return schema


def table(values):
    """The values as Markdown."""
    rows = ["| value | default | |", "|---|---|---|"]
    for value in every(values):
        text = value.comment.description.replace("|", "\\|")
        if value.is_section:
            if text:
                rows.append(f"| `{dotted(value.path)}` | | {text} |")
            continue
        default = yaml.safe_dump(value.default, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
        default = default.removesuffix("...\n").strip().replace("|", "\\|")
        rows.append(f"| `{dotted(value.path)}` | `{default}` | {text} |")
    return "\n".join(rows)


def readme(path, values):
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise Bad(f"{path} has no {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{table(values)}\n{END}{after}"


def hapax():
    """The program: the one that is named, else the one that was built last."""
    named = os.environ.get("HAPAX")
    if named:
        return Path(named)
    built = [ROOT / "target" / place for place in ("tests/cargo/bin/hapax", "release/hapax", "debug/hapax")]
    built = [program for program in built if program.exists()]
    if not built:
        raise Bad("the schema of config needs hapax: name the program by HAPAX, or cargo build")
    return max(built, key=lambda program: program.stat().st_mtime)


def config_schema():
    printed = subprocess.run([hapax(), "config", "schema"], check=True, capture_output=True, text=True).stdout
    schema = json.loads(printed)
    del schema["$schema"]
    return schema


def keys():
    """templates/_keys.tpl, from config/hapax.yaml."""
    path = ROOT / "config" / "hapax.yaml"
    text = path.read_text()
    lines = text.splitlines()
    variables, reloaded = {}, []

    def read(node, above):
        for key, child in node.value:
            here = (*above, key.value)
            comment = read_comment(lines, key.start_mark.line, key.start_mark.column).description
            variable = re.search(r"--[a-z0-9-]+, (HAPAX_[A-Z0-9_]+)$", comment)
            if not variable:
                read(child, here)
                continue
            variables[dotted(here)] = variable.group(1)
            if "Takes effect while hapax runs" in comment:
                reloaded.append(dotted(here))

    read(yaml.compose(text), ())
    return "\n".join(
        [
            "{{/* Generated from config/hapax.yaml by tests/charts/generate.py. */}}",
            "",
            "{{/* The variable of each key of the configuration, as a map. */}}",
            '{{- define "hapax.variables" -}}',
            yaml.safe_dump(variables, sort_keys=False, width=200).strip(),
            "{{- end -}}",
            "",
            "{{/* The keys that take effect while hapax runs, as a list. */}}",
            '{{- define "hapax.reloadedKeys" -}}',
            yaml.safe_dump(reloaded, sort_keys=False, width=200).strip(),
            "{{- end -}}",
            "",
        ]
    )


def outputs():
    """Every file that is generated, with what belongs into it."""
    library = read_values(CHARTS / LIBRARY / "values.yaml")
    config = config_schema()
    yield CHARTS / LIBRARY / "templates" / "_keys.tpl", keys()
    for chart in sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")):
        values = library if chart.name == LIBRARY else read_values(chart / "values.yaml", library)
        yield chart / "values.schema.json", json.dumps(schema_of(chart, values, config), indent=2, ensure_ascii=False) + "\n"
        yield chart / "README.md", readme(chart / "README.md", values)


def main(arguments):
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__)
        return 64
    stale = 0
    try:
        for path, wanted in outputs():
            found = path.read_text() if path.exists() else ""
            if found == wanted:
                continue
            stale += 1
            name = str(path.relative_to(ROOT))
            if check:
                sys.stdout.writelines(
                    difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), name, f"{name} (generated)", n=1)
                )
            else:
                path.write_text(wanted)
                print(f"{name} written")
    except Bad as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1
    if check and stale:
        print(f"{stale} files are stale: run tests/charts/generate.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
