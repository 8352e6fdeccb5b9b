// The ways from kernels to what stands behind them. Something outside of some groups that lies between two of them
// keeps these apart: one kernel could not run before and after it.
#pragma once
#include "compiler/plan/Groups.h"
#include <map>
#include <memory>

namespace cermet {

class GroupPaths {
public:
  explicit GroupPaths(const Groups& groups);
  ~GroupPaths();

  // Whether something outside of the members, with operations that are in no group, lies between two of them.
  bool leadAround(const GroupSet& members, llvm::ArrayRef<mlir::Operation*> more) const;
  // The same of two kernels; what was found from one of them is kept until kernels become one.
  bool keepApart(const GroupSet& pair);
  // Some groups have become this one.
  void merged(const Group& group);

private:
  struct Search;

  int nodeOf(const Search& search, mlir::Operation* op) const;
  std::unique_ptr<Search> startSearch(const GroupSet& of, llvm::ArrayRef<mlir::Operation*> more) const;
  size_t leave(Search& search, mlir::Operation* op) const;
  bool leadsTo(Search& search, int node, int last) const;
  int endOf(const GroupSet& members, llvm::ArrayRef<mlir::Operation*> more) const;

  const Groups& groups;
  std::map<int, int> spans;                              // from the first to the last position of groups that overlap
  llvm::DenseMap<int, std::unique_ptr<Search>> searches; // from kernels, as these are now
};

} // namespace cermet
