"""Evaluation of `classify` on labelled texts: figures, intervals, comparison, report and page."""
