"""The tool that judges mutants: a fair sample, changes that are valid, an honest interval."""

import ast
import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

PLACE = Path(__file__).with_name("mutation.py")


@pytest.fixture(scope="module")
def mutation():
    spec = importlib.util.spec_from_file_location("mutation", PLACE)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mutation", module)  # its dataclasses look there
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def every(mutation):
    return mutation.every_mutant()


def test_a_sample_is_random_and_an_edit_elsewhere_leaves_it_as_it_is(mutation, every):
    chosen = mutation.sampled(every, len(every) // 10, seed=0)
    assert len(set(chosen)) == len(chosen) == len(every) // 10
    drawn, all_of = Counter(m.file for m in chosen), Counter(m.file for m in every)
    assert all(abs(drawn[f] - n / 10) < 4 * (n / 10) ** 0.5 + 2 for f, n in all_of.items())
    other = mutation.sampled(every, len(every) // 10, seed=1)
    assert len({*chosen} & {*other}) < len(chosen) / 3
    edited = [replace(m, line=m.line + 3, start=m.start + 90) for m in every[50:]]
    again = {(m.file, m.line - 3, m.before, m.after) for m in mutation.sampled(edited, 200, 0)}
    first = {(m.file, m.line, m.before, m.after) for m in mutation.sampled(every, 200, 0)}
    assert len(first & again) > 190


def test_every_mutant_is_a_valid_change_with_a_name_of_its_own(mutation, every):
    assert len({mutant.name for mutant in every}) == len(every)
    for mutant in mutation.sampled(every, 20, seed=0):
        whole = (mutation.ROOT / "src" / mutation.PACKAGE / mutant.file).read_bytes()
        assert whole[mutant.start : mutant.stop].decode() == mutant.before
        text = whole[: mutant.start] + mutant.after.encode() + whole[mutant.stop :]
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(whole))


def test_equivalent_mutants_exist_and_have_a_reason(mutation, every):
    assert mutation.equivalent() <= {mutant.key for mutant in every}
    assert all(each["reason"] for each in json.loads(mutation.EQUIVALENT.read_text()))


def test_recorded_numbers_run_in_any_case_and_are_not_chosen_again(mutation, every, tmp_path):
    mutant = next(each for each in every if each.file == "_certify/bounds.py")
    for record in mutation.RECORDS.values():
        file, _, test = record.partition("::")
        assert f"def {test}(" in (mutation.ROOT / file).read_text()
    names = [f"{mutation.RECORDS['_certify']}[fit]", "tests/certify/test_bounds.py::test"]
    held = {"digest": mutation.digest(mutant.file), "lines": {str(mutant.line): [0, 1]}}
    path = tmp_path / "map.json"
    known = {"tests": [[name, 0.1] for name in names], "files": {mutant.file: held}}
    path.write_text(json.dumps(known))
    assert mutation.Tests(path).of(mutant) == names[1:]


def test_wilsons_interval(mutation):
    assert mutation.interval(85, 100) == pytest.approx((0.7672, 0.9069), abs=1e-4)
    assert mutation.interval(10, 10)[1] == 1.0
