#ifndef CERMET_IR_OPS
#define CERMET_IR_OPS

include "ir/dialect/Dialect.td"
include "ir/dialect/Interfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/IR/OpAsmInterface.td"

class Cermet_Op<string mnemonic, list<Trait> traits = []> : Op<Cermet_Dialect, mnemonic, traits>;

// The element types of runtime/abi/ElementType.h: those that are computed with, and floats of eight bits, which are
// stored, moved and converted.
defvar Floats = [F64, F32, BF16, F16];
defvar StoredFloats = [F8E4M3FN, F8E5M2];
defvar Integers = [I64, I32, I16, I8, UI8];

def Cermet_FloatTensor : RankedTensorOf<Floats>;
def Cermet_NumberTensor : RankedTensorOf<!listconcat(Floats, Integers)>;
def Cermet_IntegerTensor : RankedTensorOf<Integers>;
def Cermet_BoolTensor : RankedTensorOf<[I1]>;
def Cermet_OrderedTensor : RankedTensorOf<!listconcat(Floats, Integers, [I1])>;
def Cermet_Tensor : RankedTensorOf<!listconcat(Floats, StoredFloats, Integers, [I1])>;

//===--- Elementwise -------------------------------------------------------------------------------------------------//

// A small operation: no effect, a gradient rule, a meaning in float64.
class Cermet_Small<string mnemonic, list<Trait> traits = []>
    : Cermet_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                       DeclareOpInterfaceMethods<InterpretableOpInterface>], traits)>;

class Cermet_Unary<string mnemonic, string formula, TypeConstraint Tensor = Cermet_FloatTensor>
    : Cermet_Small<mnemonic, [SameOperandsAndResultType]> {
  let summary = formula # ", elementwise";
  let arguments = (ins Tensor:$operand);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($result)";
}

class Cermet_Binary<string mnemonic, string formula, TypeConstraint Tensor = Cermet_FloatTensor, list<Trait> traits = []>
    : Cermet_Small<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = formula # ", elementwise; both operands have the result's type";
  let arguments = (ins Tensor:$lhs, Tensor:$rhs);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Cermet_AddOp : Cermet_Binary<"add", "lhs + rhs", Cermet_NumberTensor, [Commutative]>;
def Cermet_SubOp : Cermet_Binary<"sub", "lhs - rhs", Cermet_NumberTensor>;
def Cermet_MulOp : Cermet_Binary<"mul", "lhs * rhs", Cermet_NumberTensor, [Commutative]>;
def Cermet_DivOp : Cermet_Binary<"div", "lhs / rhs">;
def Cermet_PowOp : Cermet_Binary<"pow", "lhs to the power of rhs">;
def Cermet_MaxOp : Cermet_Binary<"max", "the larger, NaN if one is NaN; of i1, or", Cermet_OrderedTensor, [Commutative]>;
def Cermet_MinOp : Cermet_Binary<"min", "the smaller, NaN if one is NaN; of i1, and", Cermet_OrderedTensor, [Commutative]>;

def Cermet_NegOp : Cermet_Unary<"neg", "-x", Cermet_NumberTensor>;
def Cermet_AbsOp : Cermet_Unary<"abs", "|x|", Cermet_NumberTensor>;
def Cermet_ExpOp : Cermet_Unary<"exp", "e^x">;
def Cermet_LogOp : Cermet_Unary<"log", "natural logarithm of x">;
def Cermet_SqrtOp : Cermet_Unary<"sqrt", "square root of x">;
def Cermet_RsqrtOp : Cermet_Unary<"rsqrt", "1 / sqrt(x)">;
def Cermet_TanhOp : Cermet_Unary<"tanh", "hyperbolic tangent of x">;
def Cermet_ErfOp : Cermet_Unary<"erf", "error function of x">;
def Cermet_ReluOp : Cermet_Unary<"relu", "max(x, 0)">;
def Cermet_SigmoidOp : Cermet_Unary<"sigmoid", "1 / (1 + e^-x)">;
def Cermet_SoftplusOp : Cermet_Unary<"softplus", "log(1 + e^x)">;
def Cermet_SiluOp : Cermet_Unary<"silu", "x / (1 + e^-x)">;
def Cermet_GeluOp : Cermet_Unary<"gelu", "x / 2 (1 + erf(x / sqrt(2)))">;
def Cermet_GeluTanhOp : Cermet_Unary<"gelu_tanh", "x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))">;

def Cermet_CompareOp : Cermet_Small<"compare", [AllTypesMatch<["lhs", "rhs"]>]> {
  let summary = "Whether `lhs predicate rhs`, elementwise, as i1; false where one is NaN, but for `ne`";
  let description = [{`predicate` is one of `eq` `ne` `lt` `le` `gt` `ge`.}];
  let arguments = (ins StrAttr:$predicate, Cermet_OrderedTensor:$lhs, Cermet_OrderedTensor:$rhs);
  let results = (outs Cermet_BoolTensor:$result);
  let assemblyFormat = "$predicate `,` $lhs `,` $rhs attr-dict `:` type($lhs) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_SelectOp : Cermet_Small<"select", [AllTypesMatch<["lhs", "rhs", "result"]>]> {
  let summary = "lhs where the condition holds, rhs elsewhere";
  let arguments = (ins Cermet_BoolTensor:$condition, Cermet_Tensor:$lhs, Cermet_Tensor:$rhs);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$condition `,` $lhs `,` $rhs attr-dict `:` type($condition) `,` type($result)";
  let hasVerifier = 1;
}

def Cermet_CastOp : Cermet_Small<"cast"> {
  let summary = "Round to another element type: nearest, ties to even; to an integer type toward zero; to i1, x != 0";
  let description = [{
    To f8E4M3FN, which has no infinity, what is larger than 448 becomes 448 and NaN stays NaN; to f8E5M2 it becomes
    infinity. Both round what f32 holds of the operand.
  }];
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasCanonicalizer = 1;
  let hasVerifier = 1;
}

//===--- Shape and constants -----------------------------------------------------------------------------------------//

def Cermet_ConstantOp : Cermet_Small<"constant"> {
  let summary = "One number, as a tensor of any shape";
  let description = [{
    Written as `1.0 : type`, or as the bits of the type's elements, `0xFF800000` of f32: infinities and NaN have no other
    spelling.
  }];
  let arguments = (ins F64Attr:$value);
  let results = (outs Cermet_Tensor:$result);
  let hasCustomAssemblyFormat = 1;
}

def Cermet_BroadcastOp : Cermet_Small<"broadcast"> {
  let summary = "Expand to a larger shape by NumPy's rule: dimensions align at the right, missing ones and 1s repeat";
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_ReshapeOp : Cermet_Small<"reshape"> {
  let summary = "The same elements in row-major order under another shape";
  let description = [{Element counts agree where both shapes are static; with symbols they are compared when run.}];
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_TransposeOp : Cermet_Small<"transpose"> {
  let summary = "The same elements with the dimensions in another order";
  let description = [{Dimension i of the result is dimension `permutation[i]` of the operand.}];
  let arguments = (ins Cermet_Tensor:$operand, DenseI64ArrayAttr:$permutation);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand $permutation attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_SliceOp : Cermet_Small<"slice"> {
  let summary = "A box of the operand: it begins at `starts` and has the result's sizes";
  let description = [{
    A dimension that carries one symbol in operand and result is taken whole, from 0. Where the operand's is symbolic and
    the result's is a number or another symbol, the box's end is compared with the operand's size when run.
  }];
  let arguments = (ins Cermet_Tensor:$operand, DenseI64ArrayAttr:$starts);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand $starts attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_ConcatOp : Cermet_Small<"concat"> {
  let summary = "The operands one behind the other along dimension `dim`; a static one, the others are equal";
  let arguments = (ins Variadic<Cermet_Tensor>:$operands, I64Attr:$dim);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operands attr-dict `:` type($operands) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_GatherOp : Cermet_Small<"gather"> {
  let summary = "Rows of `source` [N, columns] by number: index [...] to [..., columns]; an embedding";
  let description = [{A number below 0 or from N on gives a row of NaN (of 0 where the type is no float).}];
  let arguments = (ins Cermet_Tensor:$source, Cermet_IntegerTensor:$index);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$source `,` $index attr-dict `:` type($source) `,` type($index) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_EmbeddingBagOp : Cermet_Op<"embedding_bag",
                                      [Pure, DeclareOpInterfaceMethods<InterpretableOpInterface>,
                                       AllTypesMatch<["begins", "ends"]>]> {
  let summary = "Sums of rows by number: of row r those of `source` that `index` has from begins[r] to before ends[r]";
  let description = [{
    `source` is [N, columns], `index` [M], `begins` and `ends` [...], the result [..., columns]: an embedding's gradient,
    where `index` has the places of each number one behind the other. Sums are wide and rounded once, to the source's
    type or not below f32; one of nothing is 0. Bounds below 0 or beyond M are these. A number below 0 or from N on gives
    a sum of NaN. It is made where autograd has been, and has no gradient.

    `sums` [any, columns] has in row i the sum of the 64 rows that `index` has from place 64 i on (kBagPart in
    runtime/abi/Limits.h): where it has a row for a part of a bag, that is read instead. So bags of many rows are added
    by many threads.
  }];
  let arguments = (ins Cermet_FloatTensor:$source, Cermet_IntegerTensor:$index, Cermet_IntegerTensor:$begins,
                   Cermet_IntegerTensor:$ends, Optional<Cermet_FloatTensor>:$sums);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$source `,` $index `,` $begins `,` $ends (`sums` $sums^)? attr-dict `:` type($source) `,` type($index) `,` type($begins) (`sums` type($sums)^)? `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_PickOp : Cermet_Small<"pick"> {
  let summary = "One element of each row by column number: operand [..., columns], index [..., 1] to [..., 1]; a label's score";
  let description = [{A number below 0 or from the number of columns on gives NaN, and a gradient of NaN for the whole row.}];
  let arguments = (ins Cermet_FloatTensor:$operand, Cermet_IntegerTensor:$index);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand `,` $index attr-dict `:` type($operand) `,` type($index) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_IotaOp : Cermet_Small<"iota"> {
  let summary = "Each element's index along dimension `dim`; with `period`, its remainder after division by that";
  let arguments = (ins I64Attr:$dim, OptionalAttr<I64Attr>:$period);
  let results = (outs Cermet_NumberTensor:$result);
  let assemblyFormat = "$dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Cermet_RandomOp : Cermet_Small<"random"> {
  let summary = "Of each element 32 bits that look random, 0 to 2^32 - 1: of the seed, its row's number and its column";
  let description = [{
    Nothing else decides them (runtime/abi/Random.h), so that whoever needs them makes them again. Rows are numbered in
    row-major order, and a reshape that keeps the last dimension keeps them.
  }];
  let arguments = (ins RankedTensorOf<[I64]>:$seed);
  let results = (outs RankedTensorOf<[I64]>:$result);
  let assemblyFormat = "$seed attr-dict `:` type($seed) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_ColumnsOp : Cermet_Op<"columns", [Pure, DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "Columns by number: result [..., c] is operand [..., map[c]]; the two halves of a rotated pair, swapped";
  let description = [{
    What slices, concats and reshapes of a row become where a kernel can read its columns in another order
    (ir/transforms/Columns.h). The compiler makes it after gradients are derived, so it has none.
  }];
  let arguments = (ins Cermet_Tensor:$operand, DenseI64ArrayAttr:$map);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand $map attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===--- Reductions --------------------------------------------------------------------------------------------------//

class Cermet_Reduction<string mnemonic, string what> : Cermet_Small<mnemonic> {
  let summary = what # " over the last dimension, which stays with size 1";
  let arguments = (ins Cermet_FloatTensor:$operand);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_ReduceSumOp : Cermet_Reduction<"reduce_sum", "Sum">;
def Cermet_ReduceMaxOp : Cermet_Reduction<"reduce_max", "Largest element, NaN if one is NaN,">;
def Cermet_ReduceMinOp : Cermet_Reduction<"reduce_min", "Smallest element, NaN if one is NaN,">;

def Cermet_CumsumOp : Cermet_Small<"cumsum", [SameOperandsAndResultType]> {
  let summary = "Sum of the columns up to each and itself, along the last dimension; `reverse`: of those from it on";
  let description = [{
    Accumulated wide and rounded once, integers exactly and wrapped. A column's NaN or infinity is in the sums that have
    it, and in no others.
  }];
  let arguments = (ins Cermet_NumberTensor:$operand, UnitAttr:$reverse);
  let results = (outs Cermet_NumberTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
  let hasVerifier = 1;
}

def Cermet_SumRowsOp : Cermet_Small<"sum_rows"> {
  let summary = "Sum over every dimension but the last: [..., columns] to [columns]; a weight's gradient";
  let arguments = (ins Cermet_FloatTensor:$operand);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
}

//===--- What other code runs ----------------------------------------------------------------------------------------//

def Cermet_MatmulOp : Cermet_Small<"matmul"> {
  let summary = "lhs [..., K] times rhs [K, N], or rhs [N, K] with transpose_rhs; accumulated wide, rounded once";
  let description = [{
    `transpose_lhs` is the gradient of a weight: lhs [..., M] and rhs [..., N] have the same leading dimensions, all of
    them are summed over, the result is [M, N].
  }];
  let arguments = (ins Cermet_FloatTensor:$lhs, Cermet_FloatTensor:$rhs, UnitAttr:$transpose_lhs,
                   UnitAttr:$transpose_rhs);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_OpaqueOp : Cermet_Op<"opaque", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "An operation an importer does not know, kept whole";
  let description = [{
    `target` is the importer's own name for it. `effect` is `pure` (may be merged and removed), `effectful` (random
    numbers, collectives, printing: keeps its place) or `write`. A `write` changes memory that `operands` name: its
    first results are new versions of the first `versions` operands (the target and everything that aliases it), in
    order and with their types; later readers use those. Being a value graph, nothing else orders a write.
  }];
  let arguments = (ins StrAttr:$target, Variadic<AnyType>:$operands,
                   DefaultValuedAttr<StrAttr, "\"pure\"">:$effect, DefaultValuedAttr<I64Attr, "0">:$versions);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = "$target `(` $operands `)` attr-dict `:` functional-type($operands, $results)";
  let hasVerifier = 1;
}

//===--- Fused regions: ir/dialect/Fused.td ----------------------------------------------------------------------------------//

include "ir/dialect/Fused.td"

#endif
