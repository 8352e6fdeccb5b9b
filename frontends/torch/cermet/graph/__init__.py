"""An FX graph, whoever made it: what its nodes do and where their values lie, its editing, and decisions about it."""
