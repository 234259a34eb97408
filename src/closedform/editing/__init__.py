"""Editing: neural diffusion policies changed at inference time, with nothing but demonstrations."""
