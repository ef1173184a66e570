"""A results folder whose tables and figures are known in closed form.

In every run all angles are ``(1 + seed) * A / (step * gain)``, looked at after 1, 2, 4, ... steps
of which each takes ``STEP`` seconds.  So a streak of 16 at V is there from the first power of two
above ``(1 + seed) * A / (V * gain)`` on.  Priming alone has gain 1, pPCA_l has ``GAINS[l]``, and
one refining takes ``REFINING`` seconds.
"""

import math

import numpy as np

from primedpca_paper.protocol import N_COMPONENTS, THRESHOLDS
from primedpca_paper.records import Records, Row, Run

A, STEP, REFINING = 2.0, 0.25, 0.5
GAINS = {None: 1, 0: 2, 2: 4, 4: 8}
STEPS = tuple(2**i for i in range(11))
MACHINE = "a_machine & 100% more"
NOT_PROMISED = np.full(len(THRESHOLDS), np.nan)


def angle_at(step, gain, seed):
    return min((1 + seed) * A / (step * gain), math.pi / 2)


def first_step(threshold, extra, seed):
    """The first evaluation with a full streak, or None."""
    gain = GAINS[extra]
    return next((step for step in STEPS if angle_at(step, gain, seed) < threshold), None)


def row_of(run, step, angles, refined, seconds=math.nan, promised=NOT_PROMISED):
    angles = np.broadcast_to(np.asarray(angles, dtype=float), N_COMPONENTS)
    variances = (
        np.geomspace(1000, 1, 50)[:N_COMPONENTS]
        * np.cos(np.where(np.isfinite(angles), angles, 0)) ** 2
    )
    return Row(run, refined, step, seconds, angles, variances, promised)


def new(folder):
    return Records(folder, MACHINE, {"repeats": 2})


def write_priming(records, dataset, method, setting, *, extras=(0, 2, 4), seeds=(0, 1)):
    for extra in extras:
        for seed in seeds:
            run = Run(dataset, method, setting, extra, seed)
            rows = []
            for step in STEPS:
                for kind in (None, 0) if extra == 0 else (extra,):
                    seconds = step * STEP + REFINING * (kind is not None)
                    angle = angle_at(step, GAINS[kind], seed)
                    rows.append(row_of(run, step, angle, kind is not None, seconds))
            records.write(run, rows)


def write_ours(records, dataset, seconds=0.125, seeds=(0, 1)):
    for seed in seeds:
        for method in ("block_krylov", "certified"):
            for threshold in THRESHOLDS:
                run = Run(dataset, method, threshold, 0, seed)
                records.write(run, [row_of(run, 3, threshold / 2, True, seconds)])
        run = Run(dataset, "exact", 0.0, 0, seed)
        records.write(run, [row_of(run, 1, 1e-9, True, 2 * seconds)])


def write_grid(selection, dataset, method, angles, seeds=(0, 1)):
    """Settings whose angles stay at a value, from step 1 to 1024."""
    for setting, angle in angles.items():
        for seed in seeds:
            run = Run(dataset, method, setting, 0, seed)
            selection.write(run, [row_of(run, step, angle, False) for step in STEPS])
