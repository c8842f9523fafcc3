"""Lets calls through or not, and records what was denied."""
