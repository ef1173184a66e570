"""The paper's large-scale experiments: data whose true components nobody knew.

:func:`run_large_scale` runs one set of data and keeps what figures 4, 5 and the lobster figure
are drawn from.
"""

from __future__ import annotations

from primedpca.experiments.large_scale.runs import run_large_scale

__all__ = ["run_large_scale"]
