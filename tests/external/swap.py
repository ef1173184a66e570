"""Plugin of pytest: put the drop-ins in the place of scikit-learn's classes before collection."""

import primedpca


def pytest_configure():
    primedpca.patch_sklearn()
