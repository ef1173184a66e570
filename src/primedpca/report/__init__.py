"""The report page: one HTML file that says what a fit found and what is proven about it.

Imports the estimator's results, ``plots`` and ``sources``; only ``cli`` imports it.
"""

from primedpca.report.page import check_page_path, report_html, write_report
from primedpca.report.words import certificate_words, verdict
from primedpca.result import certificate_sentences

__all__ = ["certificate_sentences", "certificate_words", "check_page_path", "report_html"]
__all__ += ["verdict", "write_report"]
