"""Attention: masks that are causal, heads that are repeated, products that are packed."""
