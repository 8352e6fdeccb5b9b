#ifndef CERMET_IR_OPS
#define CERMET_IR_OPS

include "ir/Dialect.td"
include "ir/Interfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/IR/OpAsmInterface.td"

class Cermet_Op<string mnemonic, list<Trait> traits = []> : Op<Cermet_Dialect, mnemonic, traits>;

def Cermet_FloatTensor : RankedTensorOf<[F64, F32, BF16, F16]>;
def Cermet_Tensor : RankedTensorOf<[F64, F32, BF16, F16, I64, I32, I16, I8, UI8, I1]>;

//===--- Elementwise -------------------------------------------------------------------------------------------------//

class Cermet_Unary<string mnemonic, string formula>
    : Cermet_Op<mnemonic, [Pure, SameOperandsAndResultType, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                           DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = formula # ", elementwise";
  let arguments = (ins Cermet_FloatTensor:$operand);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($result)";
}

class Cermet_Binary<string mnemonic, string formula, list<Trait> traits = []>
    : Cermet_Op<mnemonic, !listconcat([Pure, SameOperandsAndResultType, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                       DeclareOpInterfaceMethods<InterpretableOpInterface>], traits)> {
  let summary = formula # ", elementwise; both operands have the result's type";
  let arguments = (ins Cermet_FloatTensor:$lhs, Cermet_FloatTensor:$rhs);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Cermet_AddOp : Cermet_Binary<"add", "lhs + rhs", [Commutative]>;
def Cermet_SubOp : Cermet_Binary<"sub", "lhs - rhs">;
def Cermet_MulOp : Cermet_Binary<"mul", "lhs * rhs", [Commutative]>;
def Cermet_DivOp : Cermet_Binary<"div", "lhs / rhs">;

def Cermet_NegOp : Cermet_Unary<"neg", "-x">;
def Cermet_ExpOp : Cermet_Unary<"exp", "e^x">;
def Cermet_RsqrtOp : Cermet_Unary<"rsqrt", "1 / sqrt(x)">;
def Cermet_SigmoidOp : Cermet_Unary<"sigmoid", "1 / (1 + e^-x)">;
def Cermet_SiluOp : Cermet_Unary<"silu", "x / (1 + e^-x)">;

def Cermet_CastOp : Cermet_Op<"cast", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                       DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "Round to another element type: nearest, ties to even; to an integer type toward zero; to i1, x != 0";
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===--- Shape and constants -----------------------------------------------------------------------------------------//

def Cermet_ConstantOp : Cermet_Op<"constant", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                               DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "One number, as a tensor of any shape";
  let arguments = (ins F64Attr:$value);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}

def Cermet_BroadcastOp : Cermet_Op<"broadcast", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                                 DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "Expand to a larger shape by NumPy's rule: dimensions align at the right, missing ones and 1s repeat";
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Cermet_ReshapeOp : Cermet_Op<"reshape", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                             DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "The same elements in row-major order under another shape";
  let description = [{Element counts agree where both shapes are static; with symbols they are compared when run.}];
  let arguments = (ins Cermet_Tensor:$operand);
  let results = (outs Cermet_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===--- Reductions --------------------------------------------------------------------------------------------------//

def Cermet_ReduceSumOp : Cermet_Op<"reduce_sum", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                                  DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "Sum over the last dimension, which stays with size 1";
  let arguments = (ins Cermet_FloatTensor:$operand);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_SumRowsOp : Cermet_Op<"sum_rows", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                              DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
  let summary = "Sum over every dimension but the last: [..., columns] to [columns]; a weight's gradient";
  let arguments = (ins Cermet_FloatTensor:$operand);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
}

//===--- What other code runs ----------------------------------------------------------------------------------------//

def Cermet_MatmulOp : Cermet_Op<"matmul", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                           DeclareOpInterfaceMethods<InterpretableOpInterface>]> {
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

//===--- Fused regions -----------------------------------------------------------------------------------------------//

class Cermet_Fused<string mnemonic, list<Trait> traits = []>
    : Cermet_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<DecomposableOpInterface>], traits)>;

def Cermet_RmsNormOp : Cermet_Fused<"rms_norm"> {
  let summary = "x / sqrt(mean(x^2) + eps) * (weight + weight_offset) over the last dimension";
  let description = [{
    The statistics and the normalised value are f32 (f64 for f64 x). `round_before_weight` rounds the normalised value
    to x's type before it meets the weight, as Llama's norm does; without it everything up to the result is f32, as in
    Gemma's. The result type is what the traced program had.
  }];
  let arguments = (ins Cermet_FloatTensor:$x, Cermet_FloatTensor:$weight, F64Attr:$eps,
                   DefaultValuedAttr<F64Attr, "0.0">:$weight_offset, UnitAttr:$round_before_weight);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$x `,` $weight attr-dict `:` type($x) `,` type($weight) `to` type($result)";
  let hasVerifier = 1;
}

def Cermet_AddRmsNormOp : Cermet_Fused<"add_rms_norm"> {
  let summary = "sum = x + residual; result = rms_norm(sum, weight)";
  let arguments = (ins Cermet_FloatTensor:$x, Cermet_FloatTensor:$residual, Cermet_FloatTensor:$weight, F64Attr:$eps,
                   DefaultValuedAttr<F64Attr, "0.0">:$weight_offset, UnitAttr:$round_before_weight);
  let results = (outs Cermet_FloatTensor:$result, Cermet_FloatTensor:$sum);
  let assemblyFormat = [{$x `,` $residual `,` $weight attr-dict
    `:` type($x) `,` type($residual) `,` type($weight) `to` type($result) `,` type($sum)}];
  let hasVerifier = 1;
}

def Cermet_GluOp : Cermet_Fused<"glu", [SameOperandsAndResultType]> {
  let summary = "activation(gate) * up; the activation is rounded to gate's type first, as traced";
  let arguments = (ins Cermet_FloatTensor:$gate, Cermet_FloatTensor:$up, DefaultValuedAttr<StrAttr, "\"silu\"">:$activation);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$gate `,` $up attr-dict `:` type($result)";
  let hasVerifier = 1;
}

#endif
