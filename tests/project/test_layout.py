"""The layout: the public surface is what it says, extras stay extras, imports are light.

That imports point one way is a contract in pyproject.toml, which ``lint-imports`` checks.
"""

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import primedpca

ROOT = Path(primedpca.__file__).parent
#: Functions and modules of the library that a fit of an array passes through.  Lower these numbers
#: when the path becomes shorter; the aim is 90 and 20.
MOST_FUNCTIONS, MOST_MODULES = 250, 34


def test_scikit_learn_is_imported_by_the_estimator_drop_ins_and_demos_alone():
    imported = re.compile(r"^\s*(from|import) sklearn", re.M)  # examples have prompts before it
    users = [path for path in ROOT.rglob("*.py") if imported.search(path.read_text())]
    rooms = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in users}
    assert "estimator" in rooms
    assert rooms <= {"estimator", "_model", "_demo", "sklearn"}


def test_the_public_surface():
    assert primedpca.__all__ == sorted(primedpca.__all__)
    assert dir(primedpca) == primedpca.__all__
    for name in primedpca.__all__:
        thing = getattr(primedpca, name)
        assert callable(thing)
        assert thing.__doc__
    from primedpca import metrics, monitoring, plots, priming

    for module in (metrics, monitoring, plots, priming):
        assert module.__all__ == sorted(
            module.__all__, key=lambda n: (not n.isupper(), n.lower() == n, n)
        )
        assert all(getattr(module, name).__doc__ for name in module.__all__)
    with pytest.raises(AttributeError):
        primedpca.nothing  # noqa: B018


def run(code, *blocked):
    """Run code in a fresh interpreter in which some packages cannot be imported."""
    guard = (
        "import sys\n"
        "class Guard:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {blocked!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Guard())\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", guard + code],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_function_is_not_shadowed_by_its_module():
    code = "import primedpca._solve.driver, primedpca\nfrom primedpca import prime, refine\n"
    done = run(code + "assert callable(prime) and callable(refine) and callable(primedpca.prime)")
    assert done.returncode == 0, done.stderr


EXTRAS = ("torch", "pandas", "polars", "matplotlib", "narwhals", "cupy")
FIT = """
import numpy as np, scipy.sparse as sp
X = np.random.default_rng(0).normal(size=(60, 8)) * np.arange(8, 0, -1)
"""


def test_works_without_any_extra():
    code = FIT + (
        "from primedpca import PrimedPCA\n"
        "for x in (X, sp.csr_array(X)):\n"
        "    assert PrimedPCA(3).fit(x).transform(x).shape == (60, 3)\n"
    )
    # scikit-learn 1.9 itself may need narwhals, so that one is let be here.
    done = run(code, *(name for name in EXTRAS if name != "narwhals"))
    assert done.returncode == 0, done.stderr


def test_all_but_the_estimator_works_without_scikit_learn():
    code = FIT + (
        "from primedpca import as_source, plan, prime, refine\n"
        "from primedpca.metrics import angles, captured_variance\n"
        "from primedpca.theory import counterexample\n"
        "from primedpca._solve.driver import solve\n"
        "for name in ('exact', 'oja', 'subspace_iteration', 'frequent_directions'):\n"
        "    *_, last = prime(X, name, 5, random_state=0)\n"
        "    found = refine(X, last.directions, 3)\n"
        "captured_variance(as_source(X), found.components)\n"
        "print(plan(X, 2))\n"
        "try:\n"
        "    from primedpca import PrimedPCA\n"
        "except ImportError as error:\n"
        "    assert 'scikit-learn' in str(error) or 'sklearn' in str(error)\n"
        "else:\n"
        "    raise SystemExit('the estimator came without scikit-learn')\n"
    )
    done = run(code, "sklearn", *EXTRAS)
    assert done.returncode == 0, done.stderr


def test_frames_without_narwhals_name_the_extra():
    code = (
        "import pandas as pd\nfrom primedpca import as_source\nas_source(pd.DataFrame({'a': [1]}))"
    )
    done = run(code, "narwhals")
    assert "primedpca[frames]" in done.stderr


def test_importing_is_light():
    code = (
        "import numpy, sys\nimport primedpca\nfrom primedpca import refine, prime\n"
        "heavy = {'sklearn', 'torch', 'pandas', 'polars', 'matplotlib', 'rich', 'typer'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_help_is_light():
    code = (
        "import sys\nsys.argv = ['primedpca', '--help']\nfrom primedpca.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'sklearn', 'torch', 'scipy', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_the_main_path_does_not_grow():
    """Whoever follows a fit reads these functions; the second fit leaves out imports and plans."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3000, 900)) * np.arange(1, 901) ** -0.8).astype("f4")
    primedpca.PrimedPCA(16, random_state=0).fit(X)
    seen, before = set(), sys.getprofile()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            seen.add((code.co_filename, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        primedpca.PrimedPCA(16, random_state=0).fit(X)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert 0 < len(seen) <= MOST_FUNCTIONS
    assert len({place for place, _ in seen}) <= MOST_MODULES
