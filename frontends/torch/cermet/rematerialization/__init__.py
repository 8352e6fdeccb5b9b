"""What a forward keeps for its backward, and what that computes again."""
