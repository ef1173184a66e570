"""Mutants of the numerical core, and the tests that should notice them.

    python tests/trust/mutation.py --sample 200 --seed 0     # a sample, as `make trust` does
    python tests/trust/mutation.py --all --results mutants.jsonl    # resumed from its results

A mutant is one change of the syntax tree: another comparison, operator or constant, a call of
``max`` or ``abs`` that is dropped, two arguments that are swapped.  Each runs against a copy of the
sources, first with the tests of its own folder, then with a short fuzz of the certificates.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

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
#: Not run here: they need a GPU, or time alone.
LEFT_OUT = {"_operator/gpu_products.py", "_operator/triton_kernels.py", "_solve/replay.py"}
SECONDS = 300
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
    start: int
    stop: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """File, line and change in one line."""
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


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
        yield ast.Constant(node.value + 1 if type(node.value) is int else 2 * node.value)
    elif isinstance(node, ast.Call) and node.args and not node.keywords:
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called in DROPPED:
            yield node.args[0]
        plain = not any(isinstance(arg, ast.Starred) for arg in node.args)
        if len(node.args) > 1 and plain and called not in SYMMETRIC:
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
    text = path.read_text(encoding="utf-8")
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(text)
    left = skipped(tree)
    file = path.relative_to(ROOT / "src" / PACKAGE).as_posix()
    for node in ast.walk(tree):
        if node in left or not isinstance(node, ast.expr):
            continue
        start = lines[node.lineno - 1] + node.col_offset
        stop = lines[node.end_lineno - 1] + node.end_col_offset
        before = text.encode()[start:stop].decode()
        for changed in changes(node):
            # `ast.unparse` leaves the outer brackets to its caller.
            after = f"({ast.unparse(ast.fix_missing_locations(changed))})"
            yield Mutant(file, node.lineno, start, stop, before, after)


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


def tests_of(file: str) -> list[str]:
    """Return the tests of a file: those of the longest prefix in :data:`TESTS`."""
    return TESTS[max((name for name in TESTS if file.startswith(name)), key=len)]


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
        try:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
            done = _run([*command, *tests], environment)
            if done is None or done.returncode:
                return "time" if done is None else _first(done.stdout)
            if fuzz:
                command = [sys.executable, "tests/extended_fuzz.py", "--problems", str(fuzz)]
                done = _run([*command, "--first-seed", "77", "--processes", "1"], environment)
                if done is None or done.returncode:
                    return "fuzz"
            return ""
        finally:
            path.write_bytes(whole)


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess | None:
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None


def _first(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0][:160] if lines else "import"


def judged(chosen: list[Mutant], results: Path, fuzz: int, limit: float) -> Counter:
    """Judge mutants that have no result yet, and write each result at once."""
    lines = results.read_text().splitlines() if results.exists() else []
    # Of other contents of the file a result says nothing.
    held = {file: (ROOT / "src" / PACKAGE / file).read_bytes() for file in {m.file for m in chosen}}
    digests = {file: hashlib.sha256(text).hexdigest()[:16] for file, text in held.items()}
    known = {
        found["name"]: found["caught"]
        for found in map(json.loads, lines)
        if digests.get(found["file"]) == found["digest"]
    }
    begun = time.monotonic()
    with TemporaryDirectory() as folder:
        copy = Copy(folder)
        for mutant in chosen:
            if mutant.name in known or time.monotonic() - begun > limit:
                continue
            whole = held[mutant.file]
            text = whole[: mutant.start] + mutant.after.encode() + whole[mutant.stop :]
            caught = copy.judged(mutant.file, text, tests_of(mutant.file), fuzz)
            known[mutant.name] = caught
            with results.open("a") as file:
                told = {"name": mutant.name, "caught": caught, "digest": digests[mutant.file]}
                print(json.dumps(told | asdict(mutant)), file=file)
            print(f"{caught or 'NOT CAUGHT'}: {mutant.name}", flush=True)
    names = [mutant.name for mutant in chosen]
    return Counter(bool(known[name]) for name in names if name in known)


def main() -> int:
    """Judge a sample or all of them; the exit code says whether enough were caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fuzz", type=int, default=40, help="problems of the fuzz; 0: none")
    parser.add_argument("--results", type=Path, help="file of results, to which new ones are added")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--least", type=float, default=0.85, help="share that must be caught")
    asked = parser.parse_args()
    every = every_mutant()
    chosen = random.Random(asked.seed).sample(every, len(every) if asked.all else asked.sample)
    with TemporaryDirectory() as folder:
        results = asked.results or Path(folder) / "results.jsonl"
        found = judged(chosen, results, asked.fuzz, asked.seconds)
    caught, total = found[True], sum(found.values())
    print(f"{caught} of {total} mutants caught, of {len(every)} that there are")
    return int(not total or caught < asked.least * total)


if __name__ == "__main__":
    sys.exit(main())
