#include "compiler/plan/Placement.h"
#include "runtime/abi/OperandKind.h"
#include <algorithm>
#include <map>
#include <set>

namespace cermet {
namespace {

using Json = nlohmann::ordered_json;

//===--- in_place ---------------------------------------------------------------------------------------------------//

// One operand of a step.
struct Access {
  int value = 0, root = 0; // root: the input, output or buffer that the value's memory is of
  int program = 0;         // of those that share the launch, which one
  bool isTile = false;     // of a kernel, at each row and column its own element
};

int rootOf(const Json& values, int value) {
  while (values[value]["kind"] == "view")
    value = values[value]["of"];
  return value;
}

// Whether two values are the same view, each of its own root.
bool seesAlike(const Json& values, int a, int b) {
  while (values[a]["kind"] == "view" && values[b]["kind"] == "view") {
    for (const char* field : {"view", "dims", "starts", "permutation"})
      if (values[a].value(field, Json()) != values[b].value(field, Json()))
        return false;
    a = values[a]["of"];
    b = values[b]["of"];
  }
  return values[a]["kind"] != "view" && values[b]["kind"] != "view";
}

// Whether two values are of different parts of their roots, which have the same dimensions.
bool liesApart(const Json& values, int a, int b) {
  for (int* value : {&a, &b}) {
    if (values[*value]["kind"] != "view")
      return false;
    while (values[values[*value]["of"].get<int>()]["kind"] == "view")
      *value = values[*value]["of"];
    if (values[*value]["view"] != "slice")
      return false;
  }
  auto ends = [&](int first, int second, size_t dim) {
    const Json& size = values[first]["dims"][dim];
    return size.is_number() && values[first]["starts"][dim].get<int64_t>() + size.get<int64_t>() <=
                                   values[second]["starts"][dim].get<int64_t>();
  };
  for (size_t dim = 0; dim < values[a]["dims"].size(); ++dim)
    if (ends(a, b, dim) || ends(b, a, dim))
      return true;
  return false;
}

std::vector<Access> accessesOf(const Json& values, const Json& step) {
  std::vector<Access> result;
  int program = 0;
  auto add = [&](int value, bool isTile) { result.push_back({value, rootOf(values, value), program, isTile}); };
  if (step["kind"] == "external") {
    for (const char* list : {"operands", "results"})
      for (const Json& value : step[list])
        add(value, false);
    return result;
  }
  auto addAll = [&](const Json& of) {
    for (const Json& operand : of["operands"])
      if (operand.contains("value")) // what reads other columns than its own is no tile here
        add(operand["value"],
            operand["kind"] == name(OperandKind::Tile) && !operand.contains("columns") && !operand.contains("picked"));
    ++program;
  };
  if (step.contains("programs"))
    std::ranges::for_each(step["programs"], addAll);
  else
    addAll(step);
  return result;
}

// The inputs whose memory an output may take: one program alone writes it, reads the input at the same place, element
// by element, and nothing beside or after it reads the input.
void tellInPlace(Json& values, const Json& steps) {
  std::vector<std::vector<Access>> all;
  std::vector<int> first(values.size(), -1), last(values.size(), -1); // steps that touch each root
  for (const Json& step : steps) {
    const int number = static_cast<int>(all.size());
    for (const Access& access : all.emplace_back(accessesOf(values, step))) {
      first[access.root] = first[access.root] < 0 ? number : first[access.root];
      last[access.root] = number;
    }
  }
  for (int output = 0; output < int(values.size()); ++output) {
    const int step = last[output];
    if (values[output]["kind"] != "output" || step < 0 || first[output] != step || steps[step]["kind"] != "kernel")
      continue;
    const std::vector<Access>& accesses = all[step];
    auto isOwn = [&](int root) {
      return std::ranges::all_of(accesses, [&](const Access& read) {
        return read.root != root || std::ranges::all_of(accesses, [&](const Access& written) {
                 return written.root != output || (read.isTile && written.isTile && read.program == written.program &&
                                                   (seesAlike(values, read.value, written.value) ||
                                                    liesApart(values, read.value, written.value)));
               });
      });
    };
    std::set<int> inputs;
    for (const Access& access : accesses)
      if (const Json& input = values[access.root];
          input["kind"] == "input" && last[access.root] == step && input["dtype"] == values[output]["dtype"] &&
          input["dims"] == values[output]["dims"] && isOwn(access.root) && isOwn(output))
        inputs.insert(access.root);
    if (!inputs.empty())
      values[output]["in_place"] = inputs;
  }
}

//===--- together ---------------------------------------------------------------------------------------------------//

using Axes = std::vector<int>; // dimensions of an output

// A dimension of what views make of an output: its size, and the output's dimensions that its elements run over.
struct Side {
  Json size;
  Axes axes;
};

void append(Axes& axes, const Axes& more) {
  for (int axis : more)
    if (!std::ranges::count(axes, axis))
      axes.push_back(axis);
}

// A product of sizes: of the numbers, and the symbols in it.
using Product = std::pair<uint64_t, std::multiset<std::string>>;

std::vector<Product> products(const std::vector<Side>& sides, size_t from) {
  std::vector<Product> result{{1, {}}};
  for (size_t i = from; i < sides.size(); ++i) {
    Product next = result.back();
    if (sides[i].size.is_string())
      next.second.insert(sides[i].size.get<std::string>());
    else
      next.first *= sides[i].size.get<uint64_t>();
    result.push_back(std::move(next));
  }
  return result;
}

// The axes of a reshape's dimensions. Neighbours that become other dimensions must lie in memory as one: they are added
// to `together`. What only a launch can tell apart stays together.
void reshape(std::vector<Side> from, std::vector<Side>& to, std::set<Axes>& together) {
  std::erase_if(from, [](const Side& side) { return side.size == 1; });
  std::vector<Side*> wide;
  std::vector<Side> others;
  for (Side& side : to)
    if (side.size != 1) {
      wide.push_back(&side);
      others.push_back(side);
    }
  for (size_t at = 0, reached = 0; at < from.size();) {
    const std::vector<Product> left = products(from, at), right = products(others, reached);
    size_t taken = from.size() - at, made = others.size() - reached;
    for (size_t count = 1; count < left.size(); ++count)
      if (auto equal = std::find(right.begin() + 1, right.end(), left[count]); equal != right.end()) {
        taken = count;
        made = equal - right.begin();
        break;
      }
    Axes run;
    for (size_t i = at; i < at + taken; ++i)
      append(run, from[i].axes);
    if (taken > 1 && run.size() > 1)
      together.insert(run);
    for (size_t i = reached; i < reached + made; ++i)
      wide[i]->axes = run;
    at += taken;
    reached += made;
  }
}

// What an output's views make of it.
struct Placed {
  int output;
  std::vector<Side> sides;
};

// The output's dimensions that must be neighbours in memory, in this sequence, so that every view of it has strides.
void tellTogether(Json& values) {
  std::map<int, Placed> placed; // by value
  std::map<int, std::set<Axes>> together;
  for (int value = 0; value < int(values.size()); ++value) {
    const Json& json = values[value];
    // Nothing is written through a broadcast.
    auto source = json["kind"] == "view" && json["view"] != "broadcast" ? placed.find(json["of"]) : placed.end();
    if (json["kind"] != "output" && source == placed.end())
      continue;
    std::vector<Side> sides;
    for (const Json& size : json["dims"]) {
      const int dim = static_cast<int>(sides.size());
      Side& side = sides.emplace_back(size, Axes());
      if (json["kind"] == "output")
        side.axes = size == 1 ? Axes() : Axes{dim};
      else if (json["view"] == "transpose")
        side.axes = source->second.sides[json["permutation"][dim].get<int>()].axes;
      else if (json["view"] == "slice")
        side.axes = source->second.sides[dim].axes;
    }
    const int output = json["kind"] == "output" ? value : source->second.output;
    if (json["kind"] == "view" && json["view"] == "reshape")
      reshape(source->second.sides, sides, together[output]);
    placed.emplace(value, Placed{output, std::move(sides)});
  }
  for (const auto& [output, runs] : together)
    if (!runs.empty())
      values[output]["together"] = runs;
}

} // namespace

void tellPlacement(Json& values, const Json& steps) {
  tellInPlace(values, steps);
  tellTogether(values);
}

} // namespace cermet
