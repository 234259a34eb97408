"""Demonstrations: episodes, layouts, file formats, and the sliding windows cut from episodes."""
