"""Calibration: whether a judge means what the experts mean, with both intervals, and how long that holds."""
