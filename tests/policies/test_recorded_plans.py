"""Plans are those recorded: bit for bit on a machine like the one that recorded them, else within rounding."""

import numpy as np
import pytest

from tests.conftest import real_demos
from tests.policies.recorded_plans import FILE, cases, machine, planned

ROUNDING = 1e-6  # of the largest number, on other machines


@pytest.fixture(scope="module")
def recorded():
    with np.load(FILE, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.filterwarnings("ignore::closedform.ClosedFormWarning")
@pytest.mark.parametrize("case", [*cases()])
def test_plans_are_those_recorded(case, recorded):
    name = case.split("/")[0]
    if name in ("pusht", "robomimic-lift-10"):
        real_demos(name)  # says why where there are none
    here = str(recorded["machine"]) == machine()
    for field, found in planned(case).items():
        expected = recorded[f"{case}/{field}"]
        if here or found.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected, err_msg=field)
        else:
            size = float(np.abs(expected).max(initial=0.0))
            np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * size, err_msg=field)
