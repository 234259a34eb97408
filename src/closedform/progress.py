"""Progress bars, in terminals and in notebooks."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def progress_bar(**options: Any) -> Any:
    """A bar of tqdm, which takes the options: a widget in a notebook, text in a terminal, and nothing in a log.

    In a notebook without ipywidgets it is text too.
    """
    if "ipykernel" not in sys.modules:
        from tqdm import tqdm

        return tqdm(**{"disable": None, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no widgets
        from tqdm.auto import tqdm
    return tqdm(**{"disable": False, **options})
