"""The paper's package: its commands join the command line, and the library does without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAIN = "from primedpca.cli import main; main()"


def run(code, *words, path=None):
    """Run code with the metadata of this test, or of the folder ``path`` alone."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def metadata(folder, *entries):
    """Stand in for an installation that declares these entry points."""
    place = folder / "primedpca-9.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: primedpca\nVersion: 9\n")
    (place / "entry_points.txt").write_text("\n".join(["[primedpca.commands]", *entries, ""]))
    return folder


@pytest.mark.parametrize("name", ["datasets", "reproduce"])
def test_the_commands_join_the_command_line(name):
    done = run(MAIN, name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"primedpca {name}" in done.stdout


def test_without_metadata_the_other_commands_work(tmp_path):
    done = run(MAIN, "--help", path=metadata(tmp_path))
    assert done.returncode == 0, done.stderr
    assert " demo " in done.stdout
    assert " reproduce " not in done.stdout
    done = run(MAIN, "reproduce", "table-1", path=tmp_path)
    assert done.returncode == 2
    assert "reproduce" in done.stderr


def test_other_packages_may_add_commands(tmp_path):
    (tmp_path / "greeting.py").write_text("def hello(name: str) -> None:\n    print('hello', name)")
    done = run(MAIN, "hello", "you", path=metadata(tmp_path, "hello = greeting:hello"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello you\n"


@pytest.mark.parametrize("name", ["datasets", "reproduce"])
def test_the_modules_of_commands_can_be_imported_first(name):
    done = run(f"import primedpca_paper.commands.{name}")
    assert done.returncode == 0, done.stderr


def test_the_library_works_without_the_paper():
    code = (
        "import sys; sys.modules['primedpca_paper'] = None\n"
        "import primedpca._demo as demo, primedpca.sources as sources\n"
        "print([name for name, _ in demo.demo_sets()][0], sources.Activations.__name__)"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "digits 1797 x 64 Activations\n"


@pytest.mark.parametrize("name", ["Activations", "ImageFolder", "RankRows", "VideoFrames"])
def test_sources_that_are_imported_on_first_use(name):
    done = run(
        "import sys, primedpca.sources as sources\n"
        f"kind = sources.{name}\n"
        "assert 'torch' not in sys.modules and 'PIL' not in sys.modules\n"
        "print(kind.__name__, name in sources.__all__)".replace("name in", f"{name!r} in")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name} True\n"
