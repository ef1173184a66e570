"""The paper's large-scale experiments, on data whose true components were not known.

:func:`run_large_scale` runs one data set and writes the results from which figures 4, 5 and the
lobster figure are drawn; :func:`reproduce_large_scale` runs and draws them.  Both are available as
``python -m primedpca_paper.large_scale``.
"""

from __future__ import annotations

from primedpca_paper.large_scale.curves import Curve, draw_variances
from primedpca_paper.large_scale.pictures import draw_figure_4, draw_figure_5, draw_lobsters
from primedpca_paper.large_scale.reproduce import TARGETS, reproduce_large_scale
from primedpca_paper.large_scale.runs import run_large_scale

__all__ = [
    "TARGETS",
    "Curve",
    "draw_figure_4",
    "draw_figure_5",
    "draw_lobsters",
    "draw_variances",
    "reproduce_large_scale",
    "run_large_scale",
]
