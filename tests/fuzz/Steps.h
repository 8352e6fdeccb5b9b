// The steps that a random graph is made of: each adds an operation, or a few that belong together, and says what is
// known of the result. Untame is thrown where the result's numbers would be too large to compare, or no operand fits;
// what was added until then is left dead.
#pragma once
#include "tests/fuzz/Value.h"
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace cermet::fuzz {

struct Untame {};

class Steps {
public:
  // The largest size of each symbol in any run.
  Steps(mlir::OpBuilder& builder, std::mt19937_64& random, bool differentiable,
        std::map<std::string, int64_t> symbolSizes);

  std::vector<Value> values; // all there are, operands of what comes

  // One of the steps, by a weighted draw.
  void step();

  Value add(mlir::Value value, double low, double high, bool isExact, bool isWhole);
  int pick(int count) { return static_cast<int>(random() % count); }
  int64_t largestSize(const ir::Dimension& dimension) const;
  mlir::Type floatType();
  mlir::Type integerType();

private:
  using Fits = std::function<bool(const Value&)>;
  Value any(const Fits& fits);
  Value anyFloat();
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random); }

  // Operands of one shape, the smallest that both extend to, and of a's element type.
  std::pair<Value, Value> together(Value a, Value b);
  bool extends(const ir::Dimensions& a, const ir::Dimensions& b, ir::Dimensions& joined) const;
  Value broadcast(const Value& a, const ir::Dimensions& shape);
  Value cast(const Value& a, mlir::Type element);
  Value constant(const ir::Dimensions& shape, mlir::Type element, double number);
  // `a` with a constant of its type.
  Value constantLike(const Value& a, double number) { return constant(a.shape(), a.element(), number); }
  Value view(const Value& of, mlir::Value value) { return add(value, of.low, of.high, of.isExact, of.isWhole); }
  Value away(const Value& a); // from 0: positive and at least 1/4
  Value tamed(const Value& a, double limit);

  Value plus(const Value& a, const Value& b);
  Value minus(const Value& a, const Value& b);
  Value times(const Value& a, const Value& b);
  Value over(const Value& a, const Value& b);
  Value larger(const Value& a, const Value& b);
  Value smaller(const Value& a, const Value& b);
  Value power(const Value& a);
  Value unary(const Value& a, int which);
  Value select(const Value& condition, const Value& a, const Value& b);
  Value reduceSum(const Value& a);
  Value reduceExtreme(const Value& a, bool isMax);
  Value slice(const Value& a, int64_t dim, int64_t start, int64_t size);
  Value concat(const std::vector<Value>& parts, int64_t dim);

  void unaryStep();
  void binaryStep();
  void compareStep();
  void selectStep();
  void castStep();
  void constantStep();
  void dropStep();
  void reductionStep();
  void cumsumStep();
  void sumRowsStep();
  void viewStep();
  void concatStep();
  void gatherStep();
  void pickStep();
  void normStep();
  void softmaxStep();
  void rotateStep();
  void gateStep();

  // Of sums and products of whole numbers, whether they are computed without rounding.
  bool staysWhole(const Value& a, const Value& b, double low, double high) const;
  bool mayJump(const Value& a) const { return !differentiable || a.isExact; }

  mlir::OpBuilder& builder;
  ir::Formula formula;
  mlir::Location location;
  std::mt19937_64& random;
  bool differentiable;
  std::map<std::string, int64_t> symbolSizes;
};

} // namespace cermet::fuzz
