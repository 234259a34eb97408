"""Formats that demonstrations come in, one file each; `closedform.load_demos` finds the right one."""
