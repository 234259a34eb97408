"""Formats of demonstrations, one module each; `closedform.load_demos` picks the right one."""
