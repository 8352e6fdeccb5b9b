// What outputs must be. The truth is the float64 interpreter's value without rounding; what rounding may do to it is
// what it does to the traced program.
#pragma once
#include "ir/meaning/Interpreter.h"
#include <optional>

namespace cermet::fuzz {

class Oracle {
public:
  // Of a graph and its inputs, which are numbers of their types.
  Oracle(mlir::ModuleOp graph, std::vector<ir::Array> inputs);

  // "" or why the graph cannot be interpreted.
  const std::string& error() const { return message; }
  // Every result rounded as traced.
  const std::vector<ir::Array>& traced() const { return tracedOutputs; }
  bool isFinite() const;

  // "" or which output is wrong. Integers and conditions must be equal. A float output must be as near to the truth as
  // the traced program, by its Euclidean and by its largest distance: at most twice as far, and a unit in the last
  // place and a sum's own f32 noise. Where it is not, the traced program may have been lucky (one number that rounding
  // happened to hit, a difference that cancelled): then the furthest of several programs counts that round elsewhere.
  std::string compare(const std::vector<ir::Array>& outputs);

private:
  struct Distance {
    double euclidean, largest;
  };
  static Distance distance(const ir::Array& a, const ir::Array& truth);
  void runNoisy();

  mlir::ModuleOp graph;
  std::vector<ir::Array> inputs, truth, tracedOutputs;
  std::vector<std::vector<ir::Array>> noisy; // outputs, by run
  std::string message;
};

} // namespace cermet::fuzz
