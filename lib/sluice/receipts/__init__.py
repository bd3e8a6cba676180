"""Receipts of verdicts, and their verification."""
