"""Judges: models that grade by a rubric. They have weight only while they are calibrated; see `rewards.calibration`."""
