"""An FX graph, whoever made it: what its nodes do and where their values lie; editing it, and what is decided about it."""
