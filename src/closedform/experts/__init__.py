"""Scripted experts for the robomimic tasks, and the files of demonstrations that they make."""
