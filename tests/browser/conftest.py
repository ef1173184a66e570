"""A real Chromium, and pages for it."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from planted import write_planted

from primedpca import PrimedPCA, as_source
from primedpca.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs Playwright: pip install 'primedpca[browser]'"
    )
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed; on Debian: apt-get install chromium")
    # The sandbox of Chromium does not work for root.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=flags)
        yield opened
        opened.close()


class Visit:
    """An open page, with its console messages and network requests."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.requests, self.complaints = [], []
        self.context.route("**/*", self._asked)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(Path(path).as_uri(), wait_until="networkidle")

    def _asked(self, route):
        self.requests.append(route.request.url)
        route.continue_()


@pytest.fixture
def visit(browser):
    """Open a page: ``visit(path, viewport=..., color_scheme=...)``."""
    visits = []

    def open_page(path, **options):
        visits.append(Visit(browser, path, **options))
        return visits[-1]

    yield open_page
    for one in visits:
        one.context.close()


NASTY = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def _fitted(spectrum, k, **options):
    rng = np.random.default_rng(0)
    n, d = 400, len(spectrum)
    rows = rng.normal(size=(n, d))
    rows = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n - 1)
    rows = rows * np.sqrt(spectrum) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return PrimedPCA(k, random_state=0, **options).fit(rows), rows


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Write pages of several models: certified with a pair, unproven, many components, hostile."""
    folder = tmp_path_factory.mktemp("pages")
    spectrum = 1 / np.arange(1.0, 61)
    spectrum[6] = spectrum[7]
    pca, rows = _fitted(spectrum, 8, priming="block_krylov")
    many, _ = _fitted(spectrum, 60, scale="std")
    bare, _ = _fitted(spectrum, 2, certificate="none")
    with pytest.warns(match="max_passes"):
        short, _ = _fitted(spectrum, 8, priming="block_krylov", max_passes=2)
    labels = np.where(np.arange(400) % 3 == 0, NASTY, "other")
    names = [NASTY + "x" * 200] * 60
    table = as_source(write_planted(folder / "customers.csv"), label_column="segment")
    customers = PrimedPCA(12, missing="mean", random_state=0).fit(table)
    hostile = {"data": rows, "labels": labels, "names": names, "title": NASTY + "y" * 200}
    return {
        "planted": write_report(customers, folder / "planted.html", data=table),
        "certified": write_report(pca, folder / "certified.html", data=rows),
        "many": write_report(many, folder / "many.html"),
        "bare": write_report(bare, folder / "bare.html"),
        "short": write_report(short, folder / "short.html"),
        "hostile": write_report(pca, folder / "hostile.html", **hostile),
    }
