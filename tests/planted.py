"""A table with planted facts, as a customer relations department might export it."""

import csv

import numpy as np

#: Sentences that the report of the table must contain, by the fact that they state.
FACTS = {
    "size": "The data have 600 rows and 13 columns, not scaled.",
    "90 imputed values": "90 values were missing and imputed by the mean of their column",
    "missing in one column only": "all in age: no other column has gaps.",
    "constant column": "1 column is constant (country_code)",
    "duplicate column": "orders and orders_copy are equal in every row.",
    "correlated pair": "visits with pages (r = 0.9",
    "dominating unit": "salary has more than 99.9 % of the total variance",
    "identifier": "customer_no rises by one from row to row, as identifiers do",
    "codes": "tier takes only the values 1, 2 and 3.",
    "labels": "segment: 2 classes: retail (345 rows) and wholesale (255 rows)",
    "two groups": "The rows form 2 groups that are clearly apart (345 and 252 rows)",
    "groups and labels": "The groups nearly coincide with the labels.",
    "three outliers": "3 rows stand out from all others: rows 17, 203 and 351.",
    "last components": "Components 11 and 12 have practically no variance",
    "first component": "Component 1 (99.9 % of the variance) is almost only salary",
}


def planted_columns(n=600):
    """Return the columns by name; two are text, the others numbers."""
    rng = np.random.default_rng(0)
    segment = np.where(rng.random(n) < 0.6, "retail", "wholesale")
    large = segment == "wholesale"
    orders = (rng.normal(20, 4, n) + 30 * large).round(2)
    columns = {
        "customer_no": np.arange(1001, 1001 + n),
        "orders": orders,
        "revenue": (12 * orders + rng.normal(0, 20, n)).round(2),
        "returns": (rng.normal(8, 2, n) - 5 * large).round(2),
        "visits": rng.normal(50, 10, n).round(2),
        "salary": rng.normal(52000, 9000, n).round(),
        "age": rng.normal(41, 9, n).round(1),
        "tenure": rng.normal(6, 2, n).round(2),
        "orders_copy": orders,
        "country_code": np.full(n, 49),
        "tier": rng.integers(1, 4, n),
        "segment": segment,
    }
    columns["pages"] = (3.2 * columns["visits"] + rng.normal(0, 1.5, n)).round(2)
    columns["age"][rng.permutation(n)[:90]] = np.nan
    columns["tenure"][[16, 202, 350]] += [60, -70, 80]
    columns["visits_plus_tenure"] = (columns["visits"] + columns["tenure"]).round(2)
    return columns


def write_planted(path):
    """Write the table as CSV, with empty cells for missing values."""
    columns = planted_columns()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if cell != cell else cell for cell in row])
    return path
