"""Layouts, encodings, rotations, poses, rigid maps and symmetries: what the numbers of a state are in space."""
