"""The logits of a causal language model and their loss: who makes them, who reads them, where their gradient goes."""
