"""Number of threads: a limit, the environment, affinity and the quota of a container."""

import math
import os

import numpy as np
import pytest

from primedpca import PrimedPCA
from primedpca._core import process
from primedpca._core.process import cpu_quota, limit_threads, processors
from primedpca.engines import LocalEngine


def groups(folder, lines, files):
    (folder / "proc").mkdir()
    (folder / "proc" / "cgroup").write_text("\n".join(lines) + "\n")
    for name, words in files.items():
        path = folder / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words + "\n")
    return folder / "proc", folder / "sys"


@pytest.mark.parametrize(
    ("lines", "files", "quota"),
    [
        (["0::/"], {"cpu.max": "250000 100000"}, 3),
        (["0::/"], {"cpu.max": "max 100000"}, math.inf),
        (["0::/"], {}, math.inf),
        (["0::/pod/own"], {"pod/cpu.max": "100000 100000", "pod/own/cpu.max": "max 100000"}, 1),
        (["0::/pod/own"], {"pod/cpu.max": "400000 100000", "pod/own/cpu.max": "50000 100000"}, 1),
        (["0::/host/only"], {"cpu.max": "200000 100000"}, 2),
        (
            ["4:memory:/x", "3:cpu,cpuacct:/job", "0::/"],
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        (
            ["3:cpu:/"],
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            math.inf,
        ),
        (["2:cpuset:/", "1:cpuacct:/"], {"cpuset/cpu.max": "100000 100000"}, math.inf),
    ],
)
def test_quotas_of_both_versions_of_control_groups(tmp_path, lines, files, quota):
    assert cpu_quota(*groups(tmp_path, lines, files)) == quota


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(tmp_path, tmp_path) == math.inf


def test_a_quota_limits_the_threads(monkeypatch):
    monkeypatch.delenv("PRIMEDPCA_NUM_THREADS", raising=False)
    monkeypatch.setattr(process, "cpu_quota", lambda: 1)
    assert processors() == 1
    assert LocalEngine().workers == 2  # one reads while the other works


def test_the_variable_and_the_limit(monkeypatch):
    monkeypatch.setenv("PRIMEDPCA_NUM_THREADS", "3")
    assert processors() == LocalEngine().workers == 3
    with limit_threads(1):
        assert processors() == LocalEngine().workers == 1
        with limit_threads(None):
            assert processors() == 1
    assert processors() == 3
    monkeypatch.delenv("PRIMEDPCA_NUM_THREADS")
    assert processors() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("words", ["0", "-2", "many", "1.5"])
def test_an_invalid_number_is_named(monkeypatch, words):
    monkeypatch.setenv("PRIMEDPCA_NUM_THREADS", words)
    with pytest.raises(ValueError, match=r"PRIMEDPCA_NUM_THREADS='.*' must be an integer of at"):
        processors()


@pytest.mark.parametrize("n_threads", [0, True, 1.5, "2"])
def test_an_invalid_limit_is_named(n_threads):
    with pytest.raises(ValueError, match="`n_threads`="), limit_threads(n_threads):
        pass


@pytest.mark.parametrize("shape", [(3000, 400), (300, 2000)])
def test_the_bits_do_not_depend_on_the_number(shape):
    x = np.random.default_rng(0).normal(size=shape) / np.sqrt(np.arange(1, shape[1] + 1))
    found = []
    for n_threads in (1, 2, 5):
        with limit_threads(n_threads):
            pca = PrimedPCA(6, random_state=0).fit(x)
            found.append((pca.components_, pca.transform(x), pca.certificate_.angle_bounds))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
