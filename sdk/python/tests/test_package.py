"""The package: it installs, from a wheel and from an sdist, and is typed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = {"granary/%s" % name for name in os.listdir(os.path.join(TOP, "granary")) if name.endswith((".py", ".typed"))}


def installed(*modules):
    return all(importlib.util.find_spec(name) for name in modules)


@unittest.skipUnless(installed("pip", "setuptools", "build"), "no pip, setuptools, build: pip install build setuptools")
class PackageTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.source = os.path.join(self.directory, "source")
        shutil.copytree(TOP, self.source)  # setuptools writes next to its source

    def run_module(self, *command):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_wheel_and_sdist(self):
        out = os.path.join(self.directory, "out")
        self.run_module("build", "--no-isolation", "--outdir", out, self.source)
        names = sorted(os.listdir(out))
        self.assertEqual([name.rpartition(".")[2] for name in names], ["whl", "gz"])
        with zipfile.ZipFile(os.path.join(out, names[0])) as wheel:
            packed = {name for name in wheel.namelist() if name.startswith("granary/")}
            licenses = [wheel.read(name) for name in wheel.namelist() if name.endswith("/LICENSE")]
        self.assertEqual(packed, FILES)
        self.assertEqual(len(licenses), 1)
        with tarfile.open(os.path.join(out, names[1])) as sdist:
            packed = {name.partition("/")[2] for name in sdist.getnames()}
        self.assertLessEqual(FILES | {"pyproject.toml", "README.md", "LICENSE"}, packed)

    def test_license(self):
        """The package's is that of the project."""
        project = os.path.join(TOP, "..", "..", "LICENSE")
        if os.path.exists(project):
            with open(project, "rb") as expected, open(os.path.join(TOP, "LICENSE"), "rb") as found:
                self.assertEqual(found.read(), expected.read())

    def test_install(self):
        target = os.path.join(self.directory, "target")
        self.run_module("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", target, self.source)
        program = "import granary.torch, sys; sys.exit(not granary.__file__.startswith(%r))" % target
        env = {**os.environ, "PYTHONPATH": target}
        done = subprocess.run([sys.executable, "-c", program], env=env, cwd="/", check=False)
        self.assertEqual(done.returncode, 0)


class TypesTest(unittest.TestCase):
    @unittest.skipUnless(installed("mypy"), "no mypy: pip install mypy")
    def test_strict(self):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--cache-dir", cache]
            done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
