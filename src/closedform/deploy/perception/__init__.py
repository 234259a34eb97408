"""Perception: cameras, their calibration, markers, and the poses of bodies that carry them."""
