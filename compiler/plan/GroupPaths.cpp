#include "compiler/plan/GroupPaths.h"
#include <algorithm>
#include <queue>

using namespace mlir;

namespace cermet {

constexpr size_t kMaxSteps = 16384; // from one operation to a reader, before a path is taken for granted
constexpr size_t kMaxSearches = 32; // that are kept
constexpr int kStart = -1;          // the node that all of a search's groups are

// A search for ways from kernels, and operations with them, to what stands behind them.
struct GroupPaths::Search {
  Search(const GroupSet& of, ArrayRef<Operation*> more) : of(of), more(more.begin(), more.end()) {}

  GroupSet of;
  llvm::DenseSet<Operation*> more;
  std::priority_queue<int, std::vector<int>, std::greater<>> pending; // positions of operations to leave from
  llvm::DenseSet<int> reached, behind; // nodes: found; found by way of a third, or where one stores for the other
  llvm::DenseSet<std::pair<int, Operation*>> repeated; // followed from a node
};

GroupPaths::GroupPaths(const Groups& groups) : groups(groups) {}
GroupPaths::~GroupPaths() = default;

// A kernel is one node, and an operation in none is.
int GroupPaths::nodeOf(const Search& search, Operation* op) const {
  const int group = groups.indexOf(op);
  if (group < 0)
    return search.more.contains(op) ? kStart : kStart - 1 - groups.positionOf(op);
  return search.of.contains(group) ? kStart : group;
}

std::unique_ptr<GroupPaths::Search> GroupPaths::startSearch(const GroupSet& of, ArrayRef<Operation*> more) const {
  auto search = std::make_unique<Search>(of, more);
  for (int member : of)
    for (Operation* op : groups.all[member].ops)
      search->pending.push(groups.positionOf(op));
  for (Operation* op : more)
    search->pending.push(groups.positionOf(op));
  return search;
}

// Goes from the operation to its readers; what a kernel repeats is a part of each kernel that reads it.
size_t GroupPaths::leave(Search& search, Operation* op) const {
  const int node = nodeOf(search, op);
  size_t steps = 0;
  SmallVector<Operation*> pending{op};
  while (!pending.empty()) {
    Operation* from = pending.pop_back_val();
    for (Operation* user : from->getUsers()) {
      if (user == groups.block.getTerminator())
        continue;
      ++steps;
      if (groups.repeats(user)) {
        if (search.repeated.insert({node, user}).second)
          pending.push_back(user);
        continue;
      }
      const int next = nodeOf(search, user);
      const bool isStored = groups.repeats(from) && groups.readsMemory(user);
      if (next == node && !isStored)
        continue;
      if (node != kStart || isStored)
        search.behind.insert(next);
      if (next == kStart || !search.reached.insert(next).second)
        continue;
      if (next < kStart)
        search.pending.push(groups.positionOf(user));
      else
        for (Operation* fellow : groups.all[next].ops)
          search.pending.push(groups.positionOf(fellow));
    }
  }
  return steps;
}

// Whether there is such a way to the node, at `last` or before. Where the answer takes long there is one for all that
// is known.
bool GroupPaths::leadsTo(Search& search, int node, int last) const {
  size_t steps = 0;
  while (!search.behind.contains(node) && steps <= kMaxSteps) {
    if (search.pending.empty() || search.pending.top() >= last)
      return false;
    Operation* op = groups.operations[search.pending.top()];
    search.pending.pop();
    const size_t taken = leave(search, op);
    steps += taken;
    groups.work.visited += taken;
  }
  return true;
}

// From the last of the operations on nothing leads back before them: no kernel spans that place.
int GroupPaths::endOf(const GroupSet& members, ArrayRef<Operation*> more) const {
  int last = more.empty() ? 0 : groups.positionOf(more.back());
  for (int member : members)
    last = std::max(last, groups.positionOf(groups.all[member].ops.back()));
  if (auto span = spans.upper_bound(last); span != spans.begin())
    last = std::max(last, std::prev(span)->second);
  return last;
}

bool GroupPaths::leadAround(const GroupSet& members, ArrayRef<Operation*> more) const {
  return leadsTo(*startSearch(members, more), kStart, endOf(members, more));
}

bool GroupPaths::keepApart(const GroupSet& pair) {
  const int last = endOf(pair, {});
  for (auto [from, to] : {std::pair(pair[0], pair[1]), std::pair(pair[1], pair[0])}) {
    if (searches.size() == kMaxSearches && !searches.contains(from))
      searches.clear();
    auto [known, isNew] = searches.try_emplace(from);
    if (isNew)
      known->second = startSearch(GroupSet(&from, &from + 1), {});
    if (leadsTo(*known->second, to, last))
      return true;
  }
  return false;
}

void GroupPaths::merged(const Group& group) {
  searches.clear();
  int first = groups.positionOf(group.ops.front()), last = groups.positionOf(group.ops.back());
  auto next = spans.upper_bound(first);
  if (next != spans.begin() && std::prev(next)->second >= first)
    --next;
  for (; next != spans.end() && next->first <= last; next = spans.erase(next)) {
    first = std::min(first, next->first);
    last = std::max(last, next->second);
  }
  spans[first] = last;
}

} // namespace cermet
