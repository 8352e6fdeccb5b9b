// Which of a launch's blocks run a program: all of them, or where several programs stand side by side those of a range.

struct WholeGrid {
  DEVICE i64 index() const { return block_index(); }
  DEVICE i64 count() const { return block_count(); }
};

// The programs take the blocks in their order, each as many as its argument's partialRows says.
struct BlockRange {
  i64 begin = 0, end = 0;
  // Goes on to the next program's range; whether this block is in it.
  DEVICE bool next(i64 blocks) {
    begin = end;
    end += blocks;
    return block_index() < end;
  }
  DEVICE i64 index() const { return block_index() - begin; }
  DEVICE i64 count() const { return end - begin; }
};
