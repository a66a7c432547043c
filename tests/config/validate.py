"""Reads a schema and YAML documents as JSON, writes which documents are valid."""

import json
import sys

import yaml
from jsonschema import Draft202012Validator


def with_text_keys(value):
    """As JSON has it: {1: 19093} has the key "1"."""
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_text_keys(item) for item in value]
    return value


asked = json.load(sys.stdin)
Draft202012Validator.check_schema(asked["schema"])
validator = Draft202012Validator(asked["schema"])
documents = (with_text_keys(yaml.safe_load(text)) for text in asked["documents"])
json.dump([validator.is_valid(document) for document in documents], sys.stdout)
