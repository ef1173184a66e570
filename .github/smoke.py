"""Try an installed primedpca: core dependencies only, no checkout, a minute at most.

Run in a clean environment and outside the repository, so that only what is in the wheel counts.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import primedpca


def check_files() -> None:
    """Check that the package comes from the environment and has its data files."""
    home = Path(primedpca.__file__).resolve()
    assert home.is_relative_to(Path(sys.prefix).resolve()), f"{home} is not in {sys.prefix}"
    assert primedpca.__version__ == version("primedpca")
    package = files("primedpca")
    for name in ("py.typed", "report/page.html.jinja", "report/page.css", "report/page.js"):
        assert package.joinpath(name).is_file(), f"{name} is not in the wheel"


def check_fit(folder: Path) -> None:
    """Fit, certify, save and load a small model."""
    rows = np.random.default_rng(0).normal(size=(300, 20)) * np.linspace(5, 1, 20)
    model = primedpca.PrimedPCA(3).fit(rows)
    assert model.converged_, model.status_
    truth = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * truth, axis=1)), 1, atol=1e-9)
    assert primedpca.certify(rows, truth).streak(1e-3) == 3
    model.save(folder / "model.safetensors")
    loaded = primedpca.load(folder / "model.safetensors")
    np.testing.assert_array_equal(loaded.transform(rows), model.transform(rows))
    np.save(folder / "rows.npy", rows)


def check_commands(folder: Path) -> None:
    """Run the command that the wheel installs."""
    command = Path(sys.executable).parent / "primedpca"
    listed = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("fit", "transform", "certify", "plan", "demo", "reproduce", "datasets"):
        assert name in listed, f"`primedpca --help` does not list {name}:\n{listed}"
    data = folder / "rows.npy"
    subprocess.run([command, "fit", data, "-k", "3", "--json"], check=True)
    subprocess.run([command, "demo", "--json"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    check_files()
    with TemporaryDirectory() as kept:
        check_fit(Path(kept))
        check_commands(Path(kept))
    print(f"primedpca {primedpca.__version__} works in {sys.prefix}")
