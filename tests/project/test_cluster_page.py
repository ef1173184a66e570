"""The commands of docs/clusters.md, with processes of this machine in the place of machines."""

import re
import shlex
import subprocess
import textwrap
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pages
import pytest
import zarr
from clusters import bits
from distributed import Client
from environments import ROOT, beside, here, run
from rank_starts import free_port

from primedpca import PrimedPCA

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "clusters.md"
TEXT = PAGE.read_text()
BLOCKS = [block for block in pages.blocks(PAGE) if "cluster" in block.words]


def block(part):
    """The one block with these words."""
    (found,) = (block.code for block in BLOCKS if part in block.code)
    return found


@pytest.fixture
def place(tmp_path):
    """A folder with a store, the same in memory, a free port, and a folder for commands."""
    values = np.random.default_rng(0).normal(size=(2000, 50)) * np.linspace(5, 1, 50)
    zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(500, 50))
    (tmp_path / "bin").mkdir()
    return SimpleNamespace(folder=tmp_path, store=str(tmp_path / "x.zarr"), port=str(free_port()))


def command(place, name, code):
    """Put a command in the place of one that this machine does not have."""
    path = place.folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


@contextmanager
def started(line, place):
    """A program that runs until it is no longer needed."""
    with open(place.folder / "log.txt", "a") as log:
        program = subprocess.Popen(
            shlex.split(line), stdout=log, stderr=log, cwd=place.folder, env=here()
        )
        try:
            yield program
        finally:
            program.terminate()
            program.wait(60)


def same_as_here(pca, place):
    return bits(pca) == bits(PrimedPCA(pca.n_components).fit(place.store))


# -- Dask ---------------------------------------------------------------------------------------


def test_scheduler_and_workers_by_hand(place):
    port = "8786"
    scheduler, worker = block("--no-dashboard").replace(port, place.port).splitlines()
    address = re.search(r'`PrimedPCA\(20, engine="(\S+)"\)`', TEXT)[1].replace(port, place.port)
    with started(scheduler, place), started(worker, place):
        pca = PrimedPCA(20, engine=address).fit(place.store)
    assert same_as_here(pca, place)


def test_with_tls(place, monkeypatch):
    """With a certificate made as the page makes it; without one nobody gets in."""
    run(block("openssl"), place.folder, here())
    address = f"127.0.0.1:{place.port}"
    own = f"--host 127.0.0.1 --port {place.port} --no-dashboard "
    scheduler, worker = block("--protocol tls").splitlines()
    scheduler = scheduler.replace("--protocol", own + "--protocol")
    code = block("Security(").replace("node0:8786", address)
    names = {"PrimedPCA": PrimedPCA}
    monkeypatch.chdir(place.folder)
    with started(scheduler, place), started(worker.replace("node0:8786", address), place):
        exec(code.replace("/shared/cells.zarr", place.store), names)
        names["pca"].engine.close()
        with pytest.raises((OSError, TimeoutError)):
            Client(f"tcp://{address}", timeout=5)
    assert same_as_here(names["pca"], place)


def script(place, code):
    """A file with these lines, which processes may import again."""
    lines = "if __name__ == '__main__':\n" + textwrap.indent(code, "    ")
    (place.folder / "script.py").write_text(lines + "\n    print(pca.certificate_.kind)\n")
    return place.folder / "script.py"


#: The script is gone when it returns.
SBATCH = """
cp "$1" job-$$.sh
cat "$1" >>jobs.txt
setsid bash job-$$.sh >>log.txt 2>&1 &
echo Submitted batch job $!
"""


@pytest.mark.slow
def test_slurm(place):
    """A queue that starts each job at once stands in for Slurm's; jobs and workers are real."""
    python = beside(place.folder, *re.findall("`pip install (dask-jobqueue)`", TEXT))
    command(place, "sbatch", SBATCH)
    command(place, "scancel", 'for job in "$@"; do kill -- -$job || true; done')
    code = block("SLURMCluster").replace("cores=16, processes=16", "cores=2, processes=2")
    code = code.replace("jobs=4", "jobs=2").replace("ib0", "lo")
    code = code.replace("/scratch/me/genotypes.zarr", place.store)
    code = code.replace("/scratch/me", str(place.folder))
    told = run(f"{python} {script(place, code)}", place.folder, here(place.folder / "bin"), 300)
    assert told == "exact\n"
    assert (place.folder / "model.safetensors").is_file()
    jobs = (place.folder / "jobs.txt").read_text()
    assert jobs.count("#SBATCH -p normal") == jobs.count("#SBATCH -t 02:00:00") == 2
    assert jobs.count("--nworkers 2") == 2


KUBERNETES = """
import inspect
import dask_kubernetes.operator as theirs
from distributed import LocalCluster

class KubeCluster(LocalCluster):
    def __init__(self, **options):
        inspect.signature(theirs.KubeCluster).bind(**options)
        spec = theirs.make_cluster_spec(**options)["spec"]["worker"]["spec"]["containers"][0]
        assert spec["image"] == options["image"]
        assert spec["resources"] == options["resources"]
        super().__init__(n_workers=1, dashboard_address="127.0.0.1:0")

    def scale(self, n):
        super().scale(n // 10)
"""


@pytest.mark.slow
def test_kubernetes(place):
    """The arguments make the specification of a cluster; then processes stand in for its pods."""
    python = beside(place.folder, *re.findall("`pip install (dask-kubernetes)`", TEXT))
    (place.folder / "stand_in.py").write_text(KUBERNETES)
    code = block("KubeCluster").replace("dask_kubernetes.operator", "stand_in")
    code = code.replace("fit(X)", f"fit(da.from_zarr({place.store!r}))")
    code = f"import dask.array as da\n{code}"
    assert run(f"{python} {script(place, code)}", place.folder, here(), 300) == "exact\n"


# -- torchrun -----------------------------------------------------------------------------------


def fit_script(place, begin="", **options):
    """The script of the page, with a few options more."""
    (code,) = (block.code for block in pages.blocks(PAGE) if block.code.startswith("# fit.py"))
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    code = code.replace("random_state=0)", f"random_state=0{more})")
    (place.folder / "fit.py").write_text(begin + code)


def lines_of(part):
    return [line for line in block(part).splitlines() if line.startswith("torchrun")]


def words(told):
    """Without ends of lines, which another process may write into."""
    return told.replace("\n", "")


def test_torchrun_on_one_machine(place):
    """Of the four processes two, as each takes seconds to load PyTorch."""
    fit_script(place)
    line = lines_of("--nnodes=2")[0].replace("=4", "=2")
    assert words(run(line, place.folder, here(), 300)) == "exact" * 2


@pytest.mark.slow
def test_torchrun_on_two_machines(place):
    """Eight processes, each with a PyTorch of its own."""
    fit_script(place)
    _, line = lines_of("--nnodes=2")
    line = line.replace("node0:29400", f"127.0.0.1:{place.port}")
    told = run(f"{line} & {line}; wait $!", place.folder, here(), 300)
    assert words(told) == "exact" * 8


@pytest.mark.slow
def test_a_batch_script(place):
    """As on two nodes: `srun` starts the command once for each, `scontrol` tells the first."""
    fit_script(place)
    command(place, "srun", 'for i in $(seq 2 $SLURM_NNODES); do "$@" & done\n"$@"\nwait')
    command(place, "scontrol", '[ "$*" = "show hostnames n[1-2]" ] && printf "127.0.0.1\\nn2\\n"')
    (place.folder / "job.sh").write_text(block("#SBATCH").replace(":29400", f":{place.port}"))
    slurm = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    told = run("sh job.sh", place.folder, here(place.folder / "bin") | slurm, 300)
    assert words(told) == "exact" * 8


STRUCK = """
import os, signal

if os.environ["RANK"] + os.environ["TORCHELASTIC_RESTART_COUNT"] == "30":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_restarts(place):
    """The last rank is killed when it is first started."""
    fit_script(place, STRUCK, checkpoint="folder")
    assert words(run(block("--max-restarts"), place.folder, here(), 300)) == "exact" * 4
    assert (place.folder / "folder" / "result.safetensors").is_file()


# -- none is forgotten --------------------------------------------------------------------------

TESTS = {
    "--no-dashboard": test_scheduler_and_workers_by_hand,
    "openssl": test_with_tls,
    "--protocol tls": test_with_tls,
    "Security(": test_with_tls,
    "SLURMCluster": test_slurm,
    "KubeCluster": test_kubernetes,
    "--nnodes=2": test_torchrun_on_two_machines,
    "#SBATCH": test_a_batch_script,
    "--max-restarts": test_restarts,
}


def test_every_block_has_a_test():
    everywhere = [block for page in pages.PAGES for block in pages.blocks(page)]
    assert [block for block in everywhere if "cluster" in block.words] == BLOCKS
    assert sorted(block(part) for part in TESTS) == sorted(found.code for found in BLOCKS)
