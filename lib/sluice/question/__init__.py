"""A question: its file, kinds, answers, prompt and calibration."""
