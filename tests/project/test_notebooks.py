"""Notebooks in a real kernel: the tutorial runs, and progress is shown in place."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install 'primedpca[test]'")
nbclient = pytest.importorskip("nbclient")
pytestmark = [
    pytest.mark.integration,  # a kernel is a process of its own
    # Warnings of Jupyter's own packages on some platforms and versions of Python.
    pytest.mark.filterwarnings("ignore"),
]

ROOT = Path(__file__).parents[2]


def run(notebook, folder):
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": folder}}
    )
    return client.execute()


def outputs(cell, mime):
    return [out["data"][mime] for out in cell.outputs if mime in out.get("data", {})]


def test_the_tutorial_runs_and_shows_what_it_says(tmp_path):
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # the build makes them
    done = run(notebook, str(tmp_path))
    html = [
        text
        for cell in done.cells
        if cell.cell_type == "code"
        for text in outputs(cell, "text/html")
    ]
    assert any("Fitted to 178 rows × 13 columns" in text for text in html)
    assert any("bytes read" in text for text in html)
    assert any("primedpca, done" in text for text in html)
    pictures = [
        one for cell in done.cells if cell.cell_type == "code" for one in outputs(cell, "image/png")
    ]
    assert len(pictures) >= 3
    streams = [
        out["text"]
        for cell in done.cells
        if cell.cell_type == "code"
        for out in cell.outputs
        if out.output_type == "stream"
    ]
    assert any("wine.html True" in text for text in streams)
    assert not any("step 1" in text for text in streams)


CODE = """
import numpy as np
from sklearn import set_config
from primedpca import PrimedPCA
rows = []
X = np.random.default_rng(0).normal(size=(500, 60)) * np.linspace(5, 1, 60)
"""


def test_progress_is_one_output_that_is_replaced(tmp_path):
    notebook = nbformat.v4.new_notebook()
    fit = "pca = PrimedPCA(3, priming='block_krylov', random_state=0, verbose=1).fit(X)"
    own = "PrimedPCA(3, priming='block_krylov', random_state=0, verbose=rows.append).fit(X); None"
    text = "set_config(display='text')\npca"
    for code in (CODE, fit, own, "len(rows) > 3", text, "set_config(display='diagram')\npca"):
        notebook.cells.append(nbformat.v4.new_code_cell(code))
    done = run(notebook, str(tmp_path))
    _, fitted, called, count, plain, diagram = done.cells
    (shown,) = fitted.outputs
    assert shown.output_type == "display_data"
    assert "primedpca, done" in shown["data"]["text/html"]
    assert "Components 1 to 3 are each proven" in shown["data"]["text/html"]
    assert "<svg" in shown["data"]["text/html"]
    assert called.outputs == []
    assert outputs(count, "text/plain") == ["True"]
    assert outputs(plain, "text/html") == []
    (html,) = outputs(diagram, "text/html")
    assert "sk-estimator" in html
    assert "Fitted to 500 rows × 60 columns" in html
