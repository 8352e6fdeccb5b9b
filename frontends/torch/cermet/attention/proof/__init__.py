"""What tensors of integers and truths hold at symbolic coordinates, as far as it can be proved from a graph."""
