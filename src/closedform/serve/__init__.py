"""Policies served over the network to clients that exist already."""

from closedform.client import Client
from closedform.serve.background import monitoring, serving
from closedform.serve.config import ServeConfig
from closedform.serve.gr00t_server import Gr00tServer
from closedform.serve.monitor import Monitor
from closedform.serve.monitor_server import MonitorServer
from closedform.serve.openpi_server import OpenpiServer
from closedform.serve.service import Service

__all__ = [
    "Client",
    "Gr00tServer",
    "Monitor",
    "MonitorServer",
    "OpenpiServer",
    "ServeConfig",
    "Service",
    "monitoring",
    "serving",
]
