"""Classification: a question, its labels, the prompt, and the calibration."""
