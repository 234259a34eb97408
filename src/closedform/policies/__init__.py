"""Policies made of demonstrations, and the agents that run them."""
