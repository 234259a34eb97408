"""The same mathematics fused for speed; `CLOSEDFORM_DISABLE_KERNELS=1` turns it off."""

import os


def enabled() -> bool:
    """Whether plans may use compiled code."""
    return os.environ.get("CLOSEDFORM_DISABLE_KERNELS", "") in ("", "0")
