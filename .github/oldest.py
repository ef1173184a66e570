"""Print a constraints file: the oldest version that pyproject.toml allows of each dependency.

``python .github/oldest.py > oldest.txt``, then ``pip install --constraint oldest.txt '.[all]'``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)")


def oldest() -> dict[str, str]:
    """Return the lower bound of each dependency of the core and of all extras, by name."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    found: dict[str, str] = {}
    for requirement in (line for group in groups for line in group):
        if requirement.startswith(f"{project['name']}[") or "==" in requirement:
            continue  # extras of this package, and what the tests pin
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"`{requirement}` in pyproject.toml has no lower bound. Add one.")
        name, version = match.groups()
        if found.setdefault(name, version) != version:
            raise SystemExit(
                f"{name} has two lower bounds in pyproject.toml: {found[name]} and {version}."
            )
    return found


if __name__ == "__main__":
    for name, version in sorted(oldest().items()):
        print(f"{name}=={version}")
