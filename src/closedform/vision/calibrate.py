"""The command `calibrate`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from tqdm import tqdm
from tyro.conf import Positional, arg

from closedform.errors import ConfigError
from closedform.files import check_writable, write_file
from closedform.vision.board import Board
from closedform.vision.calibration import calibrate
from closedform.vision.camera_file import save_intrinsics
from closedform.vision.cell import Cell
from closedform.vision.opencv import import_cv2
from closedform.vision.picture_files import picture_paths, read_picture
from closedform.vision.sheet import marker_sheet

_PRINTED = 200  # pixels a square of a board that is to be printed


@dataclass(frozen=True)
class Calibrate:
    """Calibrate a camera from pictures of a printed board, near and far, tilted, in all parts of the picture."""

    pictures: Positional[Annotated[Path | None, arg(metavar="PICTURES")]] = None
    """Folder of the pictures, all of the size that the camera will be used with."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("camera.json")
    """File for the calibration."""
    columns: int = 8
    """Number of squares of the board from left to right."""
    rows: int = 6
    """Number of squares from top to bottom."""
    square: float = 30.0
    """Edge of a square in millimeters, as measured on the printed board."""
    marker: float = 22.0
    """Edge of a marker in millimeters, for a ChArUco board; 0 for a plain chessboard."""
    dictionary: Annotated[str, arg(metavar="NAME")] = "5X5_100"
    """Dictionary of the markers."""
    print_board: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the board to this PNG file, to be printed, instead of calibrating."""
    print_markers: Annotated[tuple[Path, Path] | None, arg(metavar="FILE FILE")] = None
    """Write all markers of a cell (a JSON file) to a PNG file, to be printed, instead of calibrating."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Calibrates, or writes the board."""
        if sum(one is not None for one in (self.pictures, self.print_board, self.print_markers)) != 1:
            raise ConfigError(
                "expected a folder of pictures, --print-board FILE, or --print-markers CELL FILE, found none or several"
            )
        if self.print_markers is not None:
            cell, path = self.print_markers
            sheet, (width, height) = marker_sheet(Cell.load(cell))
            _write(sheet, path)
            print(f"markers: {path}, to be printed {width:g} x {height:g} mm large, on matte paper")
            return
        marker = self.marker / 1e3 if self.marker else None
        board = Board(self.columns, self.rows, self.square / 1e3, marker, self.dictionary)
        if self.print_board is not None:
            _write(board.picture(_PRINTED, _PRINTED // 4), self.print_board)
            size = f"{self.square * (self.columns + 0.5):g} x {self.square * (self.rows + 0.5):g} mm"
            print(f"board: {self.print_board}, to be printed {size} large; measure a square afterwards")
            return
        assert self.pictures is not None
        check_writable(self.output)
        paths = picture_paths(self.pictures)
        pictures = [read_picture(path) for path in tqdm(paths, desc="pictures", leave=False, disable=None)]
        found = calibrate(pictures, board)
        facts = {
            "error_pixels": round(found.error, 4),
            "n_pictures": len(found.used),
            "board": {name: value for name, value in asdict(board).items() if value is not None},
        }
        save_intrinsics(self.output, found.intrinsics, **facts)
        matrix = found.intrinsics.matrix
        if self.json:
            used = [paths[index].name for index in found.used]
            errors = dict(zip(used, found.errors.round(4).tolist(), strict=True))
            print(json.dumps({**facts, "matrix": matrix.tolist(), "errors": errors, "output": str(self.output)}))
            return
        worst = int(found.errors.argmax())
        print(f"pictures used: {len(found.used)} of {len(paths)}")
        print(
            f"reprojection error: {found.error:.3f} pixels; worst picture {paths[found.used[worst]].name} with "
            f"{found.errors[worst]:.3f}"
        )
        print(f"focal length: {matrix[0, 0]:.1f} x {matrix[1, 1]:.1f} pixels")
        print(f"calibration: {self.output}")


def _write(picture: np.ndarray, path: Path) -> None:
    if path.suffix.lower() != ".png":
        raise ConfigError(f"expected a PNG file to print, found {path.name!r}")
    check_writable(path)
    write_file(path, import_cv2("drawing").imencode(".png", picture)[1].tobytes())
