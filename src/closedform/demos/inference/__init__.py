"""Inference of what the numbers of demonstrations are, from the numbers themselves."""

__all__: list[str] = []  # its modules are imported by name
