// A plan's values while it is being made: inputs, outputs, buffers, and views of any of them.
#pragma once
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cermet {

class PlanValues {
public:
  using Json = nlohmann::ordered_json;
  enum Kind { Input, Output, Buffer, View };

  // The new value's number. A type that no plan can name is kept as an error.
  int add(Kind kind, const std::string& name, mlir::Type type);
  int addBuffer(mlir::Type type);
  // A view of value `of`, for example {"view": "slice", "starts": [...]}.
  int addView(int of, mlir::Type type, Json what);
  int addSlice(int of, mlir::Type type, llvm::ArrayRef<int64_t> starts);
  int addReshape(int of, mlir::Type type);
  // The value with a further dimension of 1 at the end.
  int withColumn(int value);

  // The input, output or buffer that the value is a view of; itself if it is none.
  int rootOf(int value) const;

  // What no plan can hold of the values so far, or "".
  std::string error() const;

  // Brings the values into the plan's order (inputs, outputs, buffers, views) and renumbers them there and in `steps`.
  Json take(Json& steps);

private:
  struct Entry {
    Kind kind;
    Json json;
    int root; // of a view; else the value itself
  };
  int add(Kind kind, const std::string& name, const std::string& dtype, Json dims);

  std::vector<Entry> entries;
  std::map<int, int> columns; // values to what withColumn made of them
  std::string message;
  int buffers = 0, views = 0;
};

// Whether a stored value lies in memory without a gap, in order. An argument does unless its strides say otherwise.
bool isDense(mlir::Value value);

// Whether a reshape can be a view of its operand whatever that is called with: the operand is dense, or the result only
// splits its dimensions.
bool isReshapeView(mlir::Operation* reshape);

} // namespace cermet
