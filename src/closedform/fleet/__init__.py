"""A fleet's demonstrations: one table of episodes in LanceDB that many robots add to and plan from (extra `fleet`)."""

from closedform.fleet.fleet_policy import FleetPolicy
from closedform.fleet.fleet_row import FleetRow
from closedform.fleet.fleet_table import FleetTable, Pushed
from closedform.fleet.publish import publish
from closedform.fleet.search_policy import SearchPolicy
from closedform.fleet.where import Where

__all__ = ["FleetPolicy", "FleetRow", "FleetTable", "Pushed", "SearchPolicy", "Where", "publish"]
