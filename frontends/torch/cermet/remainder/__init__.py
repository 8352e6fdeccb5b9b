"""What no region holds of a graph: how much it is, who runs it, and how."""
