"""Formats of demonstrations, one module each; `closedform.load_demos` picks the right one."""

__all__: list[str] = []  # its modules are imported by name
