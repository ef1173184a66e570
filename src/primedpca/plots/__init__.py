"""Plots of a fitted model, of its certificate, and of scores.

Every function takes ``ax`` (or ``axes``, where it needs several), draws on it and returns it;
without one it makes and returns a figure, which a notebook shows and ``figure.savefig`` writes.
No function uses pyplot or changes a setting of Matplotlib.  Arguments index components from 0, as
arrays do; labels and titles count them from 1.

==========================  ===================================================================
:func:`scree`               variances with certified intervals, and the cumulative ratio
:func:`certificate`         proven bound on the error of each component
:func:`convergence`         proven bounds after every pass
:func:`streaks`             number of correct leading components along a run
:func:`scores`              rows in the plane of two components
:func:`biplot`              rows as points and columns as arrows, scaled as in R
:func:`correlation_circle`  correlations of columns with two components
:func:`loadings`            largest loadings of a component
:func:`contributions`       largest contributions of columns to a component
:func:`component_images`    components of images, as images
:func:`choose_k`            rules for the number of components, and what each suggests
:func:`outliers`            T² and SPE of rows against each other, with the outliers named
:func:`monitor`             Hotelling's T² and SPE of rows, with limits for new rows
:func:`plans`               expected cost of the methods that the planner compared
:func:`style`               context in which new figures have the style of this library
==========================  ===================================================================

Needs Matplotlib: ``pip install 'primedpca[plots]'``.  Only ``report`` and ``cli`` import it.
"""

from primedpca.plots.canvas import style
from primedpca.plots.components import (
    certificate,
    component_images,
    contributions,
    convergence,
    loadings,
    scree,
)
from primedpca.plots.plane import biplot, correlation_circle, scores
from primedpca.plots.runs import choose_k, monitor, outliers, plans, streaks

__all__ = ["biplot", "certificate", "choose_k", "component_images", "contributions", "convergence"]
__all__ += ["correlation_circle", "loadings", "monitor", "outliers", "plans", "scores", "scree"]
__all__ += ["streaks", "style"]
