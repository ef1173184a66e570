"""Plots of a fitted model, of its certificate, and of scores.

Every function takes ``ax`` (or ``axes``, where it needs several), draws on it and returns it;
without one it makes a figure of its own, which ``ax.figure.savefig`` writes.  No function shows
a figure, uses pyplot or changes a setting of Matplotlib.  Arguments index components from 0, as
arrays do; labels and titles count them from 1.

=========================  ===================================================================
:func:`scree`              variances with certified intervals, and the cumulative ratio
:func:`certificate`        proven bound on the error of each component
:func:`convergence`        proven bounds after every pass
:func:`streaks`            number of correct leading components along a run
:func:`scores`             rows in the plane of two components
:func:`biplot`             rows as points and columns as arrows, scaled as in R
:func:`loadings`           largest loadings of a component
:func:`component_images`   components of images, as images
:func:`monitor`            Hotelling's T² and SPE of rows, with limits for new rows
:func:`plans`              expected cost of the methods that the planner compared
:func:`style`              context in which new figures have the style of this library
=========================  ===================================================================

Needs Matplotlib: ``pip install 'primedpca[plots]'``.  Only ``report`` and ``cli`` import it.
"""

from __future__ import annotations

from primedpca.plots.canvas import style
from primedpca.plots.components import certificate, component_images, convergence, loadings, scree
from primedpca.plots.plane import biplot, scores
from primedpca.plots.runs import monitor, plans, streaks

__all__ = ["biplot", "certificate", "component_images", "convergence", "loadings", "monitor"]
__all__ += ["plans", "scores", "scree", "streaks", "style"]
