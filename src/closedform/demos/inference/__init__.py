"""Inference of what the numbers of demonstrations are, from the numbers themselves."""
