"""Promises that hold for every history, not only for those that someone thought of."""
