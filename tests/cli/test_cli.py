"""The command line: the demo, exit codes and the version."""

import json

import pytest
from command import primedpca, primedpca_process


@pytest.fixture(scope="module")
def demo():
    done = primedpca("demo", "--json", PRIMEDPCA_DATA="")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_demo_runs_the_papers_primings_on_the_sets_that_ship(demo):
    demo = demo["rows"]
    assert {row["data"].split()[0] for row in demo} == {"digits", "exponential", "linear"}
    assert {row["priming"] for row in demo} == {"EigenGame", "Oja", "PowerMethod"}


def test_demo_shows_what_refining_buys(demo):
    for row in demo["rows"]:
        assert max(row["streaks"]) >= row["streak_before"]
        assert row["angles"][-1] < row["angle_before"]
        if row["priming"] != "PowerMethod":
            assert row["streaks"][-1] == 16 > row["streak_before"]


@pytest.mark.integration
def test_demo_prints_a_table_that_fits_a_terminal():
    done = primedpca("demo", PRIMEDPCA_DATA="", COLUMNS="80", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert "EigenGame" in done.stdout
    assert "→" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_unknown_words_exit_with_2():
    assert primedpca_process("dance").returncode == 2
    assert primedpca("demo", "--loud").returncode == 2


def test_a_data_folder_that_is_not_there_is_named():
    done = primedpca("demo", PRIMEDPCA_DATA="no/such/folder")
    assert done.returncode == 1
    assert "no/such/folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_demo_proves_what_it_finds(demo):
    assert len(demo["proofs"]) == 3
    for row in demo["proofs"]:
        assert row["true"] <= row["bound"] + 1e-5
        assert row["bound"] <= 180 / 1024


def test_version():
    done = primedpca_process("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("primedpca 0.")


def test_the_names_of_primings_are_those_of_the_registry():
    """The command line keeps its own list, so that `--help` imports no array library."""
    from primedpca.cli.options import PRIMINGS
    from primedpca.priming import REGISTRY

    assert set(PRIMINGS) == {"auto", *REGISTRY}
