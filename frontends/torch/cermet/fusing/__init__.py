"""Which sequences become regions, whether that gains, putting them into a graph, and checking what they compute."""
