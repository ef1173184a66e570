"""Mutants of the numerical core, and the tests that should notice them.

    python tests/trust/mutation.py --sample 200 --seed 0     # a sample, as `make trust` does
    python tests/trust/mutation.py --all --results mutants.jsonl    # resumed from its results
    python tests/trust/mutation.py --only _certify _solve --sample 60    # of some files

A mutant is one change of the syntax tree: another comparison, operator or constant, a call of
``max`` or ``abs`` that is dropped, two arguments that are swapped.  Each runs against a copy of the
sources, first with tests, then with a short fuzz of the certificates.

With ``--map``, a file that ``core_coverage.py --map`` writes, the tests are those that run the
changed line: tests of recorded numbers, then of every function its quickest case, and so on.
Without it they are the tests of the folder.

Mutants that change no result are listed with their reasons in ``equivalent_mutants.json`` and do
not count: "equivalent" ones, a wider but valid "margin" for rounding, and choices of "cost" alone.
The list was made from survivors alone, which raises the score: ``--count-all`` ignores it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NoReturn

ROOT = Path(__file__).parents[2]
PACKAGE = "primedpca"
#: Folder or file of sources -> tests that are about it, quickest first.
TESTS = {
    "_solve/refine.py": ["tests/solve/test_refine.py", "tests/trust/test_properties.py"],
    "_solve": ["tests/solve", "tests/trust/test_properties.py", "tests/test_estimator.py"],
    "_certify/sketch_bounds.py": ["tests/session/test_streaming.py", "tests/certify"],
    "_certify": ["tests/certify", "tests/trust/test_properties.py"],
    "_operator": ["tests/operator", "tests/trust", "tests/solve/test_accuracy.py"],
    "sources/files": ["tests/sources", "tests/contracts/test_sources.py"],
    "sources": ["tests/contracts/test_sources.py", "tests/sources"],
}
#: Folder of sources -> tests of its constants, which run on import and so belong to no test.
ON_IMPORT = {
    "_operator": "tests/operator/test_limits.py",
    "sources": "tests/sources/test_limits.py",
}
#: Tests of recorded and of exact numbers, which run first, and the most cases of one function.
PRECISE, OF_EACH = ("test_record.py", "_limits.py", "test_exact.py", "test_details.py"), 60
#: Not run here: they need a GPU, or time alone.
LEFT_OUT = {"_operator/gpu_products.py", "_operator/triton_kernels.py", "_solve/replay.py"}
SECONDS = 300
#: Tests from the map: at most so many, of which the map says that they take so many seconds.
TESTS_PER_MUTANT, TEST_SECONDS = 250, 30.0
#: Tests of few files, run before all others: to collect the rest takes longer than to run these.
FIRST_TESTS, FIRST_FILES = 25, 2
#: Recorded numbers, which run before all other tests whatever the map says: they notice most.
RECORDED = "tests/trust/test_tightness.py::test_numbers_are_those_recorded"
RECORDS = {"_solve": RECORDED, "_certify": RECORDED}
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
#: Imported once, before the processes that judge are forked: imports took most of their time.
IMPORTED_ONCE = (
    *("pytest", "hypothesis", "torch", "scipy.sparse.linalg", "scipy.stats", "sklearn.utils"),
    *("sklearn.decomposition", "pandas", "zarr", "h5py", "pyarrow.csv", "pyarrow.parquet"),
    *("array_api_compat.numpy", "safetensors", "xarray", "dask.array"),
)
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
DROPPED = {"max", "min", "abs", "maximum", "minimum", "sqrt", "clip"}
SYMMETRIC = {"max", "min", "maximum", "minimum", "hypot"}  # swapped arguments change nothing


@dataclass(frozen=True)
class Mutant:
    """A change of one file: its place, and the text before and after."""

    file: str
    line: int
    column: int
    start: int
    stop: int
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """File, place and change in one line."""
        return f"{self.file}:{self.line}:{self.column}: {self.before} -> {self.after}"

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """File, line of code, change and place in that line, whatever the line's number."""
        indent = len(self.code) - len(self.code.lstrip())
        return self.file, self.code.strip(), self.before, self.after, self.column - indent


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield changed copies of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1 if type(node.value) is int else 2 * node.value or 1.0)
    elif isinstance(node, ast.Call) and node.args and not node.keywords:
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called in DROPPED:
            yield node.args[0]
        plain = not any(isinstance(arg, ast.Starred) for arg in node.args)
        same = len(node.args) > 1 and ast.dump(node.args[0]) == ast.dump(node.args[1])
        if len(node.args) > 1 and plain and not same and called not in SYMMETRIC:
            yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], [])


def skipped(tree: ast.AST) -> set[ast.AST]:
    """Nodes whose change alters no number: annotations, messages, decorators."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        beside = [getattr(node, name, None) for name in ("annotation", "returns")]
        beside += getattr(node, "decorator_list", [])
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            beside.append(node)
        for part in filter(None, beside):
            found.update(ast.walk(part))
    return found


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of one file."""
    text = path.read_bytes()
    lines, codes = [0], text.decode().splitlines()
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(text)
    left = skipped(tree)
    file = path.relative_to(ROOT / "src" / PACKAGE).as_posix()
    for node in ast.walk(tree):
        if node in left or not isinstance(node, ast.expr):
            continue
        start = lines[node.lineno - 1] + node.col_offset
        stop = lines[node.end_lineno - 1] + node.end_col_offset
        before = text[start:stop].decode()
        for changed in changes(node):
            # `ast.unparse` leaves the outer brackets to its caller.
            after = f"({ast.unparse(ast.fix_missing_locations(changed))})"
            place = (node.lineno, node.col_offset, start, stop)
            yield Mutant(file, *place, before, after, codes[node.lineno - 1])


def every_mutant() -> list[Mutant]:
    """Return the mutants of refine, certify, solve, operator and sources, in a fixed order."""
    folders = [ROOT / "src" / PACKAGE / name for name in ("_solve", "_certify", "_operator")]
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    paths += sorted((ROOT / "src" / PACKAGE / "sources").rglob("*.py"))
    base = ROOT / "src" / PACKAGE
    return [
        mutant
        for path in paths
        if path.relative_to(base).as_posix() not in LEFT_OUT
        for mutant in mutants_of(path)
    ]


def sampled(every: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """Draw mutants at random, by a hash of their text: edits elsewhere leave the draw as it is."""

    def drawn(mutant: Mutant) -> bytes:
        place = f"{seed} {mutant.file} {mutant.column} {mutant.code.strip()}"
        return hashlib.sha256(f"{place} {mutant.before} {mutant.after}".encode()).digest()

    return sorted(every, key=drawn)[:size]


def equivalent() -> set[tuple]:
    """Return the keys of mutants that were judged to change no result."""
    held = json.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else []
    names = ("file", "code", "before", "after", "column")
    return {tuple(each[name] for name in names) for each in held}


def digest(file: str) -> str:
    """Hash of a source file, of which a result or a map of lines speaks."""
    return hashlib.sha256((ROOT / "src" / PACKAGE / file).read_bytes()).hexdigest()[:16]


class Tests:
    """Tests that should notice a mutant: those that run its line, or those of its folder."""

    def __init__(self, path: Path | None) -> None:
        self.map = json.loads(path.read_text(encoding="utf-8")) if path else {}

    def of(self, mutant: Mutant) -> list[str]:
        """Return tests, quickest first where a map tells."""
        held = self.map.get("files", {}).get(mutant.file)
        own = TESTS[max((name for name in TESTS if mutant.file.startswith(name)), key=len)]
        if held is None or held["digest"] != digest(mutant.file):
            return own
        lines = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
        numbers = {i for line in lines for i in held["lines"].get(str(line), [])}
        # Lines that run on import belong to no test: the tests of the whole file may notice.
        pinned = [] if numbers else [ON_IMPORT.get(mutant.file.split("/")[0])]
        numbers = numbers or {i for tests in held["lines"].values() for i in tests}
        chosen, total = [f"{name}::test_the_limits" for name in pinned if name], 0.0
        named = [self.map["tests"][i] for i in sorted(numbers)]  # the map lists tests by duration
        record = RECORDS.get(mutant.file.split("/")[0])  # runs in any case
        named = [test for test in named if record is None or not test[0].startswith(record)]
        # Tests about the file assert more of it than those that only come through, and other
        # functions more than other cases of one function.
        ranks = Counter[str]()
        places = {}
        for name, _ in named:
            function = name.partition("[")[0]
            ranks[function] += 1
            file = function.partition("::")[0]
            precise = file.endswith(PRECISE) and ranks[function] <= OF_EACH
            stage = 0 if precise else 1 if name.startswith(tuple(own)) else 2
            places[name] = stage, 0 if precise else ranks[function]
        for name, seconds in sorted(named, key=lambda test: places[test[0]]):
            total += seconds
            if chosen and (total > TEST_SECONDS or len(chosen) >= TESTS_PER_MUTANT):
                break
            chosen.append(name)
        return chosen


class Copy:
    """A copy of the sources in which one file at a time is changed."""

    def __init__(self, folder: str) -> None:
        self.source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", self.source)

    def judged(self, file: str, text: bytes, tests: list[str], fuzz: int = 0) -> str:
        """Return what noticed the changed file: a test, "fuzz", "time", or "" for nothing."""
        path = self.source / PACKAGE / file
        whole = path.read_bytes()
        path.write_bytes(text)
        environment = os.environ | {"PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"HYPOTHESIS_PROFILE": "quick"}
        environment |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(self.source.parent / "hypothesis")}
        try:
            record = RECORDS.get(file.split("/")[0])
            for part in [*([[record]] if record else []), *(_parts(tests) if tests else [])]:
                code, output = _forked_pytest(part, environment)
                if code > 0 and not _first(output):  # the mutant broke something, or the tests did
                    path.write_bytes(whole)
                    collected, told = _forked_pytest(["--collect-only", *part], environment)
                    assert collected == 0, f"Tests fail without a mutant:\n{output}\n{told}"
                if code:
                    return "time" if code < 0 else _first(output) or f"exit code {code}"
            if fuzz:
                command = [sys.executable, "tests/extended_fuzz.py", "--problems", str(fuzz)]
                done = _run([*command, "--first-seed", "77", "--processes", "1"], environment)
                if done is None or done.returncode:
                    return "fuzz"
            return ""
        finally:
            path.write_bytes(whole)


def _parts(tests: list[str]) -> list[list[str]]:
    """Split tests that a map has chosen into those to run first and the others."""
    if not any("::" in test for test in tests):
        return [tests]
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))[:FIRST_FILES]
    first = [test for test in tests if test.split("::")[0] in files][:FIRST_TESTS]
    rest = [test for test in tests if test not in first]
    return [first, rest] if rest else [first]


def _forked_pytest(tests: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run tests in a fork of this process; return the exit code, -1 for lack of time, and output.

    This process has imported what the tests need, but nothing of the package.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products: threads only wait
    for name in IMPORTED_ONCE:
        with suppress(ImportError):
            importlib.import_module(name)
    with TemporaryFile() as held:
        child = os.fork()
        if not child:
            _test_and_exit(tests, environment, held.fileno())
        end, code = time.monotonic() + SECONDS, None
        while code is None and time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            code = abs(os.waitstatus_to_exitcode(status)) if ended else None
            time.sleep(0 if ended else 0.02)
        if code is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        held.seek(0)
        return -1 if code is None else code, held.read().decode(errors="replace")


def _test_and_exit(tests: list[str], environment: dict[str, str], output: int) -> NoReturn:
    import pytest

    code = 70
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(ROOT)
        os.environ.update(environment)
        sys.path[:] = [name for name in sys.path if name != str(Path(__file__).parent)]
        sys.path.insert(0, environment["PYTHONPATH"])
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        plugins += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported once
        marks = "not slow and not browser" if any("::" in test for test in tests) else ""
        selected = ["-m", marks] if marks else []
        code = int(pytest.main(["-x", "-q", *plugins, *selected, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess | None:
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None


def _first(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0][:160] if lines else ""


def judged(chosen: list[Mutant], tests: Tests, results: Path, asked: argparse.Namespace) -> dict:
    """Judge mutants that have no result yet, and write each result at once."""
    lines = results.read_text().splitlines() if results.exists() else []
    # Of other contents of the file a result says nothing.
    digests = {file: digest(file) for file in {mutant.file for mutant in chosen}}
    known = {
        found["name"]: found["caught"]
        for found in map(json.loads, lines)
        if digests.get(found["file"]) == found["digest"]
    }
    left = [mutant for mutant in chosen if mutant.name not in known]
    shares = [left[i :: asked.processes] for i in range(asked.processes)]
    work = partial(_judge, tests, results, asked, digests, time.monotonic() + asked.seconds)
    with ProcessPoolExecutor(asked.processes, get_context("fork")) as pool:
        for found in pool.map(work, shares):
            known |= found
    return {mutant: known[mutant.name] for mutant in chosen if mutant.name in known}


def _judge(
    tests: Tests,
    results: Path,
    asked: argparse.Namespace,
    digests: dict[str, str],
    end: float,
    chosen: list[Mutant],
) -> dict[str, str]:
    """Judge some mutants in a copy of the sources of this process, until the time ends."""
    known = {}
    with TemporaryDirectory() as folder:
        copy = Copy(folder)
        for mutant in chosen:
            if time.monotonic() > end:
                break
            whole = (ROOT / "src" / PACKAGE / mutant.file).read_bytes()
            text = whole[: mutant.start] + mutant.after.encode() + whole[mutant.stop :]
            fuzz = 0 if mutant.file.startswith("sources") else asked.fuzz
            caught = copy.judged(mutant.file, text, tests.of(mutant), fuzz)
            known[mutant.name] = caught
            with results.open("a") as file:
                told = {"name": mutant.name, "caught": caught, "digest": digests[mutant.file]}
                print(json.dumps(told | asdict(mutant)), file=file)
            print(f"{caught or 'NOT CAUGHT'}: {mutant.name}", flush=True)
    return known


def interval(caught: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    share = caught / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    width = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    width /= 1 + z**2 / total
    return max(0.0, middle - width), min(1.0, middle + width)


def main() -> int:
    """Judge a sample or all of them; the exit code says whether enough were caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="files whose path begins so")
    parser.add_argument("--fuzz", type=int, default=40, help="problems of the fuzz; 0: none")
    parser.add_argument("--map", type=Path, help="file of the tests that run each line")
    parser.add_argument("--results", type=Path, help="file of results, to which new ones are added")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--processes", type=int, default=2, help="mutants judged at a time")
    parser.add_argument("--least", type=float, default=0.85, help="share that must be caught")
    parser.add_argument("--count-all", action="store_true", help="also those of no effect")
    asked = parser.parse_args()
    every = [mutant for mutant in every_mutant() if mutant.file.startswith(tuple(asked.only))]
    chosen = sampled(every, len(every) if asked.all else asked.sample, asked.seed)
    tests = Tests(asked.map if asked.map and asked.map.exists() else None)
    left_out = set() if asked.count_all else equivalent()
    with TemporaryDirectory() as folder:
        results = asked.results or Path(folder) / "results.jsonl"
        counted = [mutant for mutant in chosen if mutant.key not in left_out]
        found = judged(counted, tests, results, asked)
    caught, total = sum(map(bool, found.values())), len(found)
    if not total:
        return 1
    low, high = interval(caught, total)
    print(
        f"{caught} of {total} mutants caught, {caught / total:.1%} (95 % interval {low:.1%} to "
        f"{high:.1%}); drawn from {len(every)}, {len(chosen) - len(counted)} of no effect left out"
    )
    return int(caught < asked.least * total)


if __name__ == "__main__":
    sys.exit(main())
