"""Demonstrations: episodes, their layouts, and the sliding windows cut from them."""
