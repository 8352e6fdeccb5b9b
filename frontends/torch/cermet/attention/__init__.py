"""Attention: what is written out, masks that are causal or full, heads that are repeated, products that are packed."""
