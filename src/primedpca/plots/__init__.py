"""Pictures of a fitted model, of its certificate, and of data through it.

Every function takes ``ax`` (or ``axes``, where it needs several), draws on it and returns it;
without one it makes a figure of its own, which ``ax.figure.savefig`` writes.  None shows
anything, and none touches pyplot or leaves a setting of Matplotlib changed.  Components are
counted from 0 in arguments, as in arrays, and from 1 in what is drawn.

=========================  ===================================================================
:func:`scree`              variances with their certified intervals, and their running sum
:func:`certificate`        how wrong each component is, at most
:func:`convergence`        the same after every pass
:func:`streaks`            how many leading components were right, along a run
:func:`scores`             rows in the plane of two components
:func:`biplot`             rows and columns in one picture, scaled as R does
:func:`loadings`           the largest entries of a component
:func:`component_images`   components of images, as images
:func:`monitor`            Hotelling's T² and SPE of rows, with limits for new ones
:func:`plans`              the ways that were priced
:func:`style`              a context in which new figures look like ours, on white or dark
=========================  ===================================================================

Needs Matplotlib: ``pip install 'primedpca[plots]'``.
"""

from __future__ import annotations

from primedpca.plots.arrows import biplot
from primedpca.plots.canvas import style
from primedpca.plots.control import monitor
from primedpca.plots.entries import loadings
from primedpca.plots.images import component_images
from primedpca.plots.plane import scores
from primedpca.plots.prices import plans
from primedpca.plots.proof import certificate, convergence
from primedpca.plots.runs import streaks
from primedpca.plots.spectrum import scree

__all__ = [
    "biplot",
    "certificate",
    "component_images",
    "convergence",
    "loadings",
    "monitor",
    "plans",
    "scores",
    "scree",
    "streaks",
    "style",
]
