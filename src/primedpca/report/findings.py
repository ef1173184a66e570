"""What the page says about the data: columns, number of components, components, and rows.

Sentences count components and rows from 1 and put names between backticks, which the page shows as
code.  They describe these data; none of them is a test of a hypothesis.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.wording import count_words, numbered
from primedpca._model.attributes import divisible
from primedpca._model.columns import leading_above, standard_variance
from primedpca.plots.plane import UNKNOWN
from primedpca.report.inputs import Inputs, spaced
from primedpca.report.rows import Outliers, groups, outliers

MOST_NAMES = 5  # names listed in a sentence
MOST_SENTENCES = 8  # components described in a sentence each
LONGEST = 40  # letters of a name
LONG_TAILS = 0.02  # fraction of the rows from which they are tails rather than outliers
TINY = 1e-6  # explained variance ratio that is hardly anything
NONE = 1e-12  # explained variance ratio that rounding leaves of nothing
DOMINANT = 0.8  # share of the total variance that a single column has
SHARES = (0.8, 0.9, 0.95)


class Findings(NamedTuple):
    """Everything the page says about the data.

    Attributes
    ----------
    data : list of (str, str)
        Facts with their names.
    notes : list of str
        What a reader should know before using the components, with a remedy where there is one.
    rules : list of (str, str, str)
        Rules for the number of components: name, number, explanation.
    how_many, components, rows, short : list of str
        Sentences on the number of components, on each component, on rows, and a summary.
    far : list of tuple of str
        Rows of the table of outliers: row, T², SPE, remark.
    unlisted : int
        Outliers beyond those of the table.
    skipped : tuple of str
    """

    data: list[tuple[str, str]]
    notes: list[str]
    rules: list[tuple[str, str, str]]
    how_many: list[str]
    components: list[str]
    rows: list[str]
    short: list[str]
    far: list[tuple[str, str, str, str]]
    unlisted: int
    skipped: tuple[str, ...]


def find(model: Any, known: Inputs) -> Findings:
    """Describe the data of a report."""
    name = Names(model, known)
    rules, how_many = _how_many(model)
    described = _components(model, known, name)
    rows, far, unlisted = _rows(model, known, name)
    data, notes = _data(model, known, name), _notes(model, known, name)
    short = [
        _size(model, known),
        *([] if known.facts is None else _dominant(model, known.facts, name)),
    ]
    if notes:
        short.append(f"{_see(len(notes))} on the columns before you use the components.")
    short += how_many[:1] + described[: 2 if known.image_shape is None else 0] + rows
    return Findings(
        data, notes, rules, how_many, described, rows, short, far, unlisted, known.skipped
    )


def _see(count: int) -> str:
    return "Read the note" if count == 1 else f"Read the {count} notes"


class Names:
    """Names of columns and rows, ready for a sentence."""

    def __init__(self, model: Any, known: Inputs) -> None:
        self._columns, self._rows = known.names, known.row_names

    def __call__(self, column: int) -> str:
        """Name of a column; without names, ``x0``, ``x1`` and so on, as in the plots."""
        return quoted(f"x{column}" if self._columns is None else self._columns[column])

    def row(self, row: int) -> str:
        """Number of a row from 1, with its name if it has one."""
        number = spaced(row + 1)
        return number if self._rows is None else f"{number} ({quoted(self._rows[row])})"

    def several(self, columns: Sequence[int], most: int = MOST_NAMES) -> str:
        """List of column names, of which all beyond ``most`` are only counted."""
        return listed([self(j) for j in columns[:most]], len(columns))


def quoted(name: Any) -> str:
    """Put a name between backticks, on one line and not too long.

    Examples
    --------
    >>> quoted("price"), quoted("a" * 50)[:12], quoted("`x`")
    ('`price`', '`aaaaaaaaaaa', "`'x'`")
    """
    text = " ".join(str(name).split()).replace("`", "'") or "(empty)"
    half = LONGEST // 2
    return f"`{text if len(text) <= LONGEST else text[:half] + '…' + text[-half + 1 :]}`"


def listed(words: Sequence[str], count: int | None = None) -> str:
    """Join words by commas and *and*; ``count`` is their number including those left out.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b"], 7), listed(["a"])
    ('a, b and c', 'a, b and 5 more', 'a')
    """
    left = (count or len(words)) - len(words)
    parts = [*words, f"{spaced(left)} more"] if left else list(words)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"


# -- columns ---------------------------------------------------------------------------------


def _size(model: Any, known: Inputs) -> str:
    n, d = model.n_samples_, model.n_features_in_
    what = f"{_counted(n, 'row')} and {_counted(d, 'column')}"
    what = f"{what}, {_scaling(model)[0].lower()}{_scaling(model)[1:]}."
    if not known.foreign:
        return f"The data have {what}"
    return (
        "The rows shown here are not those of the fit, or were read in another way, or had weights "
        "in the fit: their number, or the means and variances of their scores, are others. "
        f"Variances and bounds are those of the data of the fit, which had {what}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{spaced(count)} {noun}{'s' * (count != 1)}"


def _scaling(model: Any) -> str:
    if model.scale_ is None:
        return "Not scaled" if model.center_ else "Neither centred nor scaled"
    if model.standardised_:
        return "Each column divided by its standard deviation"
    return "Columns divided by given numbers"


def _data(model: Any, known: Inputs, name: Names) -> list[tuple[str, str]]:
    n, d = model.n_samples_, model.n_features_in_
    said = [("Data", known.name)] if known.name else []
    said.append(("Size", f"{_counted(n, 'row')} × {_counted(d, 'column')}"))
    if known.foreign and known.shape is not None:
        said.append(("Shown here", f"{_counted(known.shape[0], 'row')}, not as in the fit"))
    said.append(("Type", known.dtype or f"{model.components_.dtype} components"))
    if getattr(model, "map_", None) is not None:
        said.append(("Map", f"{model.map_}, applied to each row"))
    said.append(("Scaling", _scaling(model)))
    if known.label_name is not None or known.labels is not None:
        said.append(("Labels", _labels(known)))
    if known.row_names is not None:
        said.append(("Row names", f"such as {quoted(known.row_names[0])}"))
    facts = known.facts
    if facts is None:
        return said
    columns = np.flatnonzero(facts.missing)
    said.append(("Missing", _missing(model, facts.missing, columns, name)))
    constant = np.flatnonzero(facts.constant)
    said.append(("Constant", _columns(constant, name)))
    double = [j for group in facts.duplicates for j in group[1:]]
    said.append(("Duplicate", _columns(double, name)))
    if facts.zeros >= 0.2:
        said.append(("Zeros", f"{100 * facts.zeros:.0f} % of the values"))
    return said


def _columns(columns: Any, name: Names) -> str:
    if not len(columns):
        return "no column"
    return f"{count_words(len(columns), 'column')}: {name.several(list(columns))}"


def _missing(model: Any, missing: np.ndarray, columns: np.ndarray, name: Names) -> str:
    total = int(missing.sum())
    if not total:
        return "no value"
    done = ", each replaced by the mean of its column" if model.missing == "mean" else ""
    return f"{count_words(total, 'value')} in {count_words(columns.size, 'column')}{done}"


def _labels(known: Inputs) -> str:
    assert known.labels is not None
    values, title = known.labels, f"{quoted(known.label_name)}: " if known.label_name else ""
    kind = values.dtype.kind
    absent = ~np.isfinite(values) if kind in "iubf" else values == UNKNOWN
    gaps = f"; {UNKNOWN} in {count_words(int(absent.sum()), 'row')}" if absent.any() else ""
    found, counts = np.unique(values[~absent], return_counts=True)
    if kind == "f" or found.size > 12 or not found.size:
        return f"{title}{count_words(found.size, 'different value')}{gaps}"
    parts = [
        f"{quoted(word)} ({count_words(int(count), 'row')})"
        for word, count in zip(found, counts, strict=True)
    ]
    classes = "1 class" if found.size == 1 else f"{found.size} classes"
    return f"{title}{classes}: {listed(parts)}{gaps}"


def _notes(model: Any, known: Inputs, name: Names) -> list[str]:
    facts = known.facts
    if facts is None:
        return []
    said = [*_gaps(model, facts, name), *_marks(facts, name)]
    constant = np.flatnonzero(facts.constant)
    if constant.size:
        them, have = ("it", "has") if constant.size == 1 else ("they", "have")
        what = "column is" if constant.size == 1 else "columns are"
        said.append(
            f"{spaced(constant.size)} {what} constant ({name.several(list(constant))}): {them} "
            f"{have} no variance and no part in any component."
        )
    if known.image_shape is not None:
        return said  # pixels are alike, and whole numbers, by nature
    for group in facts.duplicates[:MOST_NAMES]:
        said.append(
            f"{name.several(group)} are equal in every row. A quantity that is there "
            f"{'twice' if len(group) == 2 else f'{len(group)} times'} counts as often; keep one."
        )
    if len(facts.duplicates) > MOST_NAMES:
        more = len(facts.duplicates) - MOST_NAMES
        said.append(f"{count_words(more, 'more group')} of columns are equal in every row.")
    return [*said, *_alike(facts, name), *_dominant(model, facts, name), *_no_measures(facts, name)]


def _gaps(model: Any, facts: Any, name: Names) -> list[str]:
    columns = np.argsort(-facts.missing, kind="stable")[: np.count_nonzero(facts.missing)]
    if not columns.size:
        return []
    total = int(facts.missing.sum())
    were = "was" if total == 1 else "were"
    done = " and imputed by the mean of their column" if model.missing == "mean" else ""
    said = f"{count_words(total, 'value')} {were} missing{done}"
    if columns.size == 1:
        return [f"{said}, all in {name(columns[0])}: no other column has gaps."]
    parts = [f"{name(j)} ({spaced(int(facts.missing[j]))})" for j in columns[:MOST_NAMES]]
    return [f"{said}: {listed(parts, columns.size)}."]


def _marks(facts: Any, name: Names) -> list[str]:
    said = []
    for value in dict.fromkeys(facts.marks.values()):
        columns = [j for j, mark in facts.marks.items() if mark == value]
        end, words = "smallest" if value < 0 else "largest", "often stands for a missing value"
        said.append(
            f"The {end} value of {name.several(columns)} is {value}, which {words}. If it does "
            f"here, read the file with `na_values={value}` (`--na-values {value}`), or replace it "
            "by NaN, and fit with `missing='mean'` (`--missing mean`)."
        )
    return said


def _alike(facts: Any, name: Names) -> list[str]:
    double = {frozenset((a, b)) for group in facts.duplicates for a in group for b in group}
    pairs = [pair for pair in facts.pairs if frozenset(pair[:2]) not in double]
    # Of duplicates one stands for all, so that a pair is not listed twice.
    others = {j for group in facts.duplicates for j in group[1:]}
    pairs = [pair for pair in pairs if not {*pair[:2]} & others]
    if not pairs:
        return []
    parts = [f"{name(i)} with {name(j)} ({_correlation(r)})" for i, j, r in pairs[:MOST_NAMES]]
    what = "pair of columns is" if len(pairs) == 1 else "pairs of columns are"
    count = "1000 or more" if len(facts.pairs) >= 1000 else spaced(len(pairs))
    return [f"{count} {what} strongly correlated: {listed(parts, len(pairs))}."]


def _correlation(value: float) -> str:
    # Not rounded to 1: that would say that one column determines the other.
    shown = min(abs(value), 0.9999) if abs(value) < 1 - 1e-12 else 1.0
    return f"r = {'−' if value < 0 else ''}{shown:.4g}"


def _dominant(model: Any, facts: Any, name: Names) -> list[str]:
    total = float(facts.variances.sum())
    if model.scale_ is not None or not total > 0 or facts.variances.size < 2:
        return []
    largest = int(facts.variances.argmax())
    share = float(facts.variances[largest]) / total
    if share < DOMINANT:
        return []
    return [
        f"{name(largest)} has {_share(share)} of the total variance, because its numbers are "
        "larger and the columns were not scaled: component 1 is little else. If the columns have "
        "different units, fit again with `scale='std'` (`--scale std`)."
    ]


def _share(ratio: float) -> str:
    """Format a share without rounding it up to the whole."""
    percent = 100 * ratio
    return f"more than {np.floor(10 * percent) / 10:g} %" if percent > 99 else f"{percent:.0f} %"


def _no_measures(facts: Any, name: Names) -> list[str]:
    """Name columns that look like identifiers or classes rather than measurements."""
    said = []
    if 0 < len(facts.identifiers) <= 3:
        for j in facts.identifiers:
            rises = "rises by one from row to row" if j in facts.counters else ""
            what = rises or "has a different whole number in every row"
            said.append(
                f"{name(j)} {what}, as identifiers do, and is no measurement then. Leave it out "
                f"of the components: `--id` or `--exclude`."
            )
    if 0 < len(facts.codes) <= 3:
        for j, values in facts.codes.items():
            said.append(
                f"{name(j)} takes only the values {listed([f'{value:g}' for value in values])}. If "
                "they are codes of classes, use them as labels: `--label`."
            )
    elif len(facts.codes) > 3:
        some = name.several(list(facts.codes))
        said.append(
            f"{count_words(len(facts.codes), 'column')} take at most 12 different whole numbers: "
            f"{some}."
        )
    return said


# -- components ------------------------------------------------------------------------------


def _explained(ratio: float) -> str:
    """Format an explained variance ratio: what is not all of the variance is not 100 %."""
    text = f"{100 * ratio:.3g}"
    return "more than 99.9 %" if text == "100" and ratio < 1 - 1e-12 else f"{text} %"


def _how_many(model: Any) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Apply rules for the number of components that need no more than the variances."""
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    k = ratios.size
    if k == 0 or not ratios.sum() > 0:
        return [], []
    sums, rules = np.cumsum(ratios), []
    for share in SHARES:
        enough = int(np.searchsorted(sums, share - 1e-12)) + 1
        number = str(enough) if enough <= k else f"more than {k}"
        reached = f"the first {enough} explain" if 1 < enough <= k else "the first explains"
        reached = f"all {k} explain" if enough > k > 1 else reached
        why = f"{reached} {_explained(sums[min(enough, k) - 1])}"
        rules.append((f"{100 * share:g} % of the variance", number, why))
    width = max(k, int(min(model.n_samples_ - model.center_, model.n_features_in_)))
    if width > 1:
        # Expected lengths of the pieces of a stick that breaks at random places.
        sticks = np.cumsum(1.0 / np.arange(width, 0, -1))[::-1][:k] / width
        broken = _leading(ratios > sticks)
        why = "variances larger than those of a total divided at random"
        rules.append(("Broken stick", _at_least(broken, k), why))
        least = standard_variance(model)
        if least is not None:
            variances = model.explained_variance_.astype(np.float64)
            above = leading_above(variances, least, model.components_.dtype)
            why = f"variances above {least:.4g}, that of a single scaled column"
            rules.append(("Kaiser", _at_least(above, k), why))
    said = [_summary(ratios, sums, rules)]
    return rules, said + _nothing_left(ratios)


def _nothing_left(ratios: np.ndarray) -> list[str]:
    """Name the last components, if they have practically no variance."""
    said, none = [], ratios < NONE
    if none.any():
        have = "have" if none.sum() > 1 else "has"
        said.append(
            f"{numbered(none)} {have} practically no variance: some columns are combinations of "
            "others, or there are too few rows."
        )
    little = (ratios < TINY) & ~none
    if little.any():
        each = "each explain" if little.sum() > 1 else "explains"
        said.append(f"{numbered(little)} {each} less than a millionth of the variance.")
    return said


def _leading(mask: np.ndarray) -> int:
    return int(np.argmin(mask)) if not mask.all() else mask.size


def _at_least(count: int, k: int) -> str:
    return f"at least {k}" if count == k else str(count)


def _summary(ratios: np.ndarray, sums: np.ndarray, rules: list[tuple[str, str, str]]) -> str:
    k, total = ratios.size, _explained(sums[-1])
    if k == 1:
        return f"The component explains {total} of the variance."
    found = {rule: number for rule, number, _ in rules}.get("Broken stick", "")
    half = f"The {k} components explain {total} of the variance"
    first = f"the first alone {_explained(ratios[0])}"
    if not found or found.startswith("at least"):
        more = "; more components may stand out, as all of these do" if found else ""
        return f"{half}, {first}{more}."
    stand = {"0": "none stands", "1": "1 stands"}.get(found, f"{found} stand")
    return f"{half}, {first}; {stand} out by the broken-stick rule."


def _components(model: Any, known: Inputs, name: Names) -> list[str]:
    if known.image_shape is not None:
        return []  # images show more than names of pixels
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    said = []
    for i in range(min(model.n_components_, MOST_SENTENCES)):
        share = f" ({100 * ratios[i]:.3g} % of the variance)" if ratios.sum() > 0 else ""
        said.append(f"Component {i + 1}{share} {component_words(model, i, name)}.")
    return said


def component_words(model: Any, i: int, name: Any) -> str:
    """Describe component ``i`` of a model by its largest loadings, if it has a variance."""
    if not divisible(model)[i]:
        return "has no variance beyond rounding, so its direction is arbitrary"
    return loading_words(model.components_[i], name)


def loading_words(loadings: Any, name: Any) -> str:
    """Describe a component by its largest loadings.

    Parameters
    ----------
    loadings : array of shape (d,)
        Of unit length.
    name : callable
        Returns the name of a column.

    Examples
    --------
    >>> import numpy as np
    >>> names = ["revenue", "orders", "returns", "age"].__getitem__
    >>> loading_words(np.array([0.64, 0.6, -0.48, 0.02]), names)
    'is mostly revenue and orders (positive) against returns (negative)'
    >>> loading_words(np.array([0.01, -0.999, 0.04, 0.0]), names)
    'is almost only orders (negative)'
    >>> loading_words(np.array([0.5, 0.5, 0.5, 0.5]), names)
    'is an average of all 4 columns'
    """
    values = np.asarray(loadings, dtype=np.float64)
    sizes, d = np.abs(values), values.size
    order = np.argsort(-sizes, kind="stable")
    top = float(sizes[order[0]])
    if top**2 > 0.95:
        sign = "positive" if values[order[0]] > 0 else "negative"
        return f"is almost only {name(order[0])} ({sign})"
    if d > 2 and sizes.min() > 0.5 * top and (np.sign(values) == np.sign(values[0])).all():
        return f"is an average of all {spaced(d)} columns"
    large = order[sizes[order] >= 0.5 * top]
    spread = 1 / float((values**4).sum())  # number of equal loadings with the same fourth moment
    lead = "is mostly"
    if large.size > 2 * MOST_NAMES:
        lead = f"is spread over about {spaced(round(spread))} columns, led by"
    parts = []
    for side, word in ((1, "positive"), (-1, "negative")):
        chosen = [j for j in large if np.sign(values[j]) == side]
        if chosen:
            some = listed([name(j) for j in chosen[:MOST_NAMES]], len(chosen))
            parts.append(f"{some} ({word})")
    return f"{lead} {' against '.join(parts)}"


# -- rows ------------------------------------------------------------------------------------


def _rows(
    model: Any, known: Inputs, name: Names
) -> tuple[list[str], list[tuple[str, str, str, str]], int]:
    scores, found = known.all_scores, known.statistics
    if scores is None or found is None:
        return [], [], 0
    far = outliers(found)
    ordinary = np.ones(scores.shape[0], dtype=bool)
    ordinary[far.rows] = False
    said = _groups(model, known, ordinary, name) + _outliers(far, scores.shape[0], name)
    table = [_remark(model, known, far, at, name) for at in range(min(10, far.rows.size))]
    return said, table, far.rows.size - len(table)


def _outliers(far: Outliers, n: int, name: Names) -> list[str]:
    count = far.rows.size
    if count == 0:
        return ["No row stands out from the others."] if n >= 20 else []
    some = [name.row(row) for row in np.sort(far.rows[:MOST_NAMES])]
    if count > max(MOST_NAMES, LONG_TAILS * n):
        return [
            f"{spaced(count)} rows ({100 * count / n:.2g} %) are farther out than normally "
            f"distributed rows would be, rows {listed(some)} farthest: the data have long tails "
            "or groups rather than a few outliers."
        ]
    rows = "row stands" if count == 1 else "rows stand"
    where = f"row {some[0]}" if count == 1 else f"rows {listed(some, count)}"
    return [f"{spaced(count)} {rows} out from all others: {where}."]


def _remark(
    model: Any, known: Inputs, far: Outliers, at: int, name: Names
) -> tuple[str, str, str, str]:
    row, scores, found = int(far.rows[at]), known.all_scores, known.statistics
    assert scores is not None
    assert found is not None
    parts = []
    if far.inside[at]:
        variances = np.asarray(model.explained_variance_[: scores.shape[1]], dtype=np.float64)
        component = int(np.argmax(scores[row] ** 2 / variances))
        parts.append(f"far out along component {component + 1}")
    if far.beside[at]:
        parts.append("not described by the components")
    t2, spe = (f"{values[row]:.4g}" for values in found)
    return name.row(row), t2, spe, " and ".join(parts)


def _groups(model: Any, known: Inputs, ordinary: np.ndarray, name: Names) -> list[str]:
    assert known.all_scores is not None
    scores = known.all_scores[ordinary, :4]
    found = groups(scores)
    if found is None:
        return []
    counts = np.bincount(found)
    centres = np.stack([scores[found == i].mean(axis=0) for i in range(counts.size)])
    apart = centres[0] - centres[1]
    within = np.sqrt(sum(scores[found == i].var(axis=0) * counts[i] for i in (0, 1)) / counts.sum())
    along = int(np.argmax(np.abs(apart) / np.maximum(within, 1e-300)))
    sizes = listed([spaced(int(count)) for count in counts])
    said = f"The rows form {counts.size} groups that are clearly apart ({sizes} rows)"
    said += f", most of all along component {along + 1}"
    if known.image_shape is None:
        said += f"; the two largest differ most in {name.several(_differ(model, known, apart), 2)}"
    if known.labels is not None and _coincide(found, known.labels[ordinary]):
        said += ". The groups nearly coincide with the labels"
    return [f"{said}. Groups in scores are a hint: check whether they mean something."]


def _differ(model: Any, known: Inputs, apart: np.ndarray) -> list[int]:
    """Return the two columns whose means differ most, in standard deviations where known."""
    change = np.abs(apart @ np.asarray(model.components_[: apart.size], dtype=np.float64))
    if model.scale_ is None and known.facts is not None:
        spread = np.sqrt(known.facts.variances)
        change = np.divide(change, spread, out=np.zeros_like(change), where=spread > 0)
    if known.facts is not None:  # of equal columns, only the first
        change[[j for group in known.facts.duplicates for j in group[1:]]] = 0.0
    return [int(j) for j in np.argsort(-change, kind="stable")[:2]]


def _coincide(found: np.ndarray, labels: np.ndarray) -> bool:
    """Whether 95 % of the rows have the most frequent label of their group, and these differ."""
    _, codes = np.unique(labels, return_inverse=True)
    tops = [np.bincount(codes[found == i]) for i in range(int(found.max()) + 1)]
    same = sum(int(top.max()) for top in tops)
    return same >= 0.95 * found.size and len({int(top.argmax()) for top in tops}) == len(tops)
