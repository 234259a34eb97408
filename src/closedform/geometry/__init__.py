"""Layouts, encodings, rotations, poses, rigid maps and symmetries: what the numbers of a state are in space."""

from closedform.geometry.body_symmetry import BodySymmetry
from closedform.geometry.encoding import Block, Encoding
from closedform.geometry.layout import Entry, Layout
from closedform.geometry.rigid_pose import RigidPose

__all__ = ["Block", "BodySymmetry", "Encoding", "Entry", "Layout", "RigidPose"]
