"""What repeats in a graph: found, left out while others work on the graph, and put back."""
