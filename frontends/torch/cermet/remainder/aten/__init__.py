"""Rewriting the ATen graphs that run by direct calls."""
