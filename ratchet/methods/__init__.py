"""Methods: each one file that turns data or a task stream and a policy into a candidate with its learning curves."""
