"""What a release is made by: the workflows, archives, bills of materials, and what Cargo.toml says of them.

    TEST_IMAGE=FOLDER TEST_INSTALLED=FOLDER python3 -m unittest
"""
import json
import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

import archive
import bill
import build
import jsonschema
import yaml
from cyclonedx.schema import _res as cyclonedx_schemas
from referencing import Registry, Resource

INSTALLED = Path(os.environ["TEST_INSTALLED"]).resolve()
IMAGE = Path(os.environ["TEST_IMAGE"]).resolve()
WORKFLOWS = sorted((build.ROOT / ".github/workflows").glob("*.yaml"))
TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "aarch64-apple-darwin", "x86_64-apple-darwin"]


class TestWorkflows(unittest.TestCase):
    def test_they_are_valid(self):
        done = subprocess.run([INSTALLED / "actionlint", *WORKFLOWS], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_mistake_would_be_found(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = Path(folder) / "wrong.yaml"
            wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on", "runs_on"))
            done = subprocess.run([INSTALLED / "actionlint", wrong], capture_output=True, text=True)
        self.assertIn("runs_on", done.stdout)

    def test_actions_are_pinned_by_commit(self):
        for workflow in WORKFLOWS:
            for used in re.findall(r"uses: (\S+)(.*)", workflow.read_text()):
                if not used[0].startswith("./"):
                    self.assertRegex(" ".join(used), r"^[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", workflow.name)

    def test_only_publishing_may_write(self):
        for workflow in WORKFLOWS:
            document = yaml.safe_load(workflow.read_text())
            self.assertEqual(document["permissions"], {"contents": "read"}, workflow.name)
            writing = {name for name, job in document["jobs"].items() if "write" in str(job.get("permissions"))}
            self.assertLessEqual(writing, {"image", "charts", "release"}, workflow.name)

    def test_nothing_is_published_untested(self):
        jobs = yaml.safe_load((build.ROOT / ".github/workflows/release.yaml").read_text())["jobs"]
        self.assertLessEqual({"tests", "build"}, set(jobs["image"]["needs"]))
        commands = [step.get("run", "") for step in jobs["image"]["steps"]]
        [proof] = [number for number, command in enumerate(commands) if "layout.py layout amd64 arm64" in command]
        [publish] = [number for number, command in enumerate(commands) if "skopeo copy" in command]
        self.assertLess(proof, publish)
        for later in ("charts", "release"):
            self.assertIn("image", jobs[later]["needs"])

    def test_they_compile_with_the_compiler_of_the_project(self):
        channel = re.search(r'channel = "(.+)"', (build.ROOT / "rust-toolchain.toml").read_text())[1]
        for workflow in WORKFLOWS:
            for image in re.findall(r"image: rust:(\S+)", workflow.read_text()):
                self.assertEqual(image, f"{channel}-bookworm", workflow.name)


class TestArchives(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.written = archive.texts(IMAGE / "amd64/image/usr/local/bin/hapax")

    def packed(self, target, binary):
        return archive.packed(self.folder, target, archive.contents(binary, target, self.written))

    def test_each_target_is_told_by_its_binary(self):
        for target in TARGETS:
            packed = self.packed(target, header_of(target))
            self.assertEqual(archive.complaints(packed, build.version(), target), [])

    def test_a_binary_of_another_target_is_found(self):
        packed = self.packed(TARGETS[0], header_of(TARGETS[1]))
        self.assertIn("its binary is for aarch64-unknown-linux-musl", archive.complaints(packed, build.version(), TARGETS[0])[0])

    def test_a_missing_file_and_other_bytes_are_found(self):
        files = archive.contents(header_of(TARGETS[0]), TARGETS[0], self.written)
        del files["hapax.1"]
        packed = archive.packed(self.folder, TARGETS[0], files)
        packed.with_name(f"{packed.name}.sha256").write_text(f"{'0' * 64}  {packed.name}\n")
        found = " ".join(archive.complaints(packed, build.version(), TARGETS[0]))
        self.assertIn(f"{packed.name} has [", found)
        self.assertIn("does not have its checksum", found)

    def test_the_same_input_is_the_same_bytes(self):
        first = self.packed(TARGETS[0], header_of(TARGETS[0])).read_bytes()
        self.assertEqual(self.packed(TARGETS[0], header_of(TARGETS[0])).read_bytes(), first)

    def test_cargo_binstall_is_told_the_same_names(self):
        package = tomllib.loads((build.ROOT / "Cargo.toml").read_text())["package"]
        told = package["metadata"]["binstall"]
        for target in TARGETS:
            variables = {"repo": package["repository"], "version": package["version"], "target": target, "bin": "hapax", "binary-ext": ""}
            filled = lambda key: re.sub(r"\{ ([\w-]+) \}", lambda found: variables[found[1]], told[key])
            packed = self.packed(target, header_of(target))
            tag = f"{package['repository']}/releases/download/v{package['version']}"
            self.assertEqual(filled("pkg-url"), f"{tag}/{packed.name}")
            self.assertEqual(filled("bin-dir"), f"{archive.name(package['version'], target)}/hapax")
            self.assertEqual(told["pkg-fmt"], "tgz")

    def test_the_release_packs_all_of_them(self):
        text = (build.ROOT / ".github/workflows/release.yaml").read_text() + (build.ROOT / "tests/run").read_text()
        for target in TARGETS:
            self.assertTrue(target in text, target)


class TestBill(unittest.TestCase):
    def test_it_lists_what_the_binary_is_built_of_and_not_what_tests_need(self):
        manifest = tomllib.loads((build.ROOT / "Cargo.toml").read_text())
        for target in TARGETS:
            document = bill.bill(target, "revision")
            names = {name for name, _ in bill.crates(document)}
            self.assertLessEqual(set(manifest["dependencies"]), names, target)
            self.assertTrue(names.isdisjoint({"proptest", "tempfile", "divan", "rcgen"}), target)
            for component in document["components"]:
                self.assertTrue(component["licenses"] and component["hashes"], component["name"])
            told = {dependency["ref"] for dependency in document["dependencies"]}
            self.assertEqual(told - {component["purl"] for component in document["components"]}, {f"pkg:cargo/hapax@{build.version()}"})

    def test_it_is_valid_by_the_specification(self):
        schema = cyclonedx_schema("bom-1.5")
        validator = jsonschema.Draft7Validator(schema, registry=cyclonedx_registry())
        document = bill.bill(TARGETS[0], "revision")
        validator.validate(document)
        document["components"][0]["type"] = "crate"
        self.assertRaises(jsonschema.ValidationError, validator.validate, document)

    def test_it_names_no_place_of_this_machine(self):
        self.assertNotIn(str(build.ROOT), json.dumps(bill.bill(TARGETS[0], "revision")))


def cyclonedx_schema(name):
    return json.loads((Path(cyclonedx_schemas.__path__[0]) / f"{name}.SNAPSHOT.schema.json").read_text())


def cyclonedx_registry():
    """The schemas that CycloneDX's own refers to, by the names it uses."""
    names = {"spdx.schema.json": "spdx", "jsf-0.82.schema.json": "jsf-0.82"}
    return Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(cyclonedx_schema(file))) for name, file in names.items()
    )


def header_of(target):
    """A binary of that target as far as anyone looks at it."""
    processor, system = target.split("-")[0], target.split("-")[2]
    if system == "darwin":
        number = {name: number for number, name in archive.APPLE_PROCESSORS.items()}[processor]
        return bytes.fromhex("cffaedfe") + number.to_bytes(4, "little") + bytes(56)
    machine = {"x86_64": 62, "aarch64": 183}[processor]
    return b"\x7fELF\x02\x01\x01" + bytes(11) + machine.to_bytes(2, "little") + bytes(44)


if __name__ == "__main__":
    unittest.main()
