"""``primedpca inspect``: show the contents of a model file."""

from __future__ import annotations

from typing import Any

from primedpca.cli import options as opt
from primedpca.cli.files import load_model
from primedpca.cli.printing import print_json, printable, to_terminal

__all__ = ["inspect"]


def inspect(model: opt.Model, as_json: opt.AsJson = False, debug: opt.Debug = False) -> None:
    """Show a model written by fit or PrimedPCA.save: its components and what is proven.

    Every byte of the file is checked, and nothing in it is executed.

    Example: primedpca inspect model.safetensors
    """
    pca = load_model(model)
    names = getattr(pca, "feature_names_in_", None)
    if as_json:
        from primedpca.cli.summary import model_json

        found = model_json(pca) | {"parameters": pca.get_params(deep=False)}
        print_json(found | {"model": str(model), "feature_names": names})
    else:
        _show(pca, model, names)


def _show(pca: Any, path: Any, names: Any) -> None:
    from primedpca.cli.summary import show_model

    console = to_terminal()
    fitted = (
        f"{printable(path)}: fitted to {pca.n_samples_:,} rows x {pca.n_features_in_:,} columns"
    )
    console.print(fitted, style="bold", soft_wrap=not console.is_terminal)
    if names is not None:
        shown = ", ".join(map(_written, names[:8])) + (", ..." if len(names) > 8 else "")
        console.print(f"Columns: {shown}", soft_wrap=not console.is_terminal)
    if getattr(pca, "map_", None) is not None:
        console.print(f"Map: {printable(pca.map_)}, applied to each row")
    if pca.scale is not None:
        how = "their standard deviations" if isinstance(pca.scale, str) else "given numbers"
        console.print(f"Scale: columns divided by {how}")
    if pca.missing == "mean":
        console.print("Missing values: replaced by the mean of their column")
    if pca.plan_ is not None:
        console.print(printable(pca.plan_), soft_wrap=not console.is_terminal)
    console.print()
    show_model(console, pca)


def _written(name: str) -> str:
    """Write the name of a column as ``--columns`` reads it."""
    shown = printable(name)
    return f'"{shown}"' if "," in name else shown
