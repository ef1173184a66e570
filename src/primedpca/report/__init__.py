"""The report page: one HTML file that says what a fit found and what is proven about it.

Imports the estimator's results, ``plots`` and ``sources``; only ``cli`` imports it.
"""

from __future__ import annotations

from primedpca.report.page import report_html, write_report
from primedpca.report.page_file import check_page_path
from primedpca.report.words import certificate_sentences, certificate_words, verdict

__all__ = [
    "certificate_sentences",
    "certificate_words",
    "check_page_path",
    "report_html",
    "verdict",
    "write_report",
]
