// Named fusions, what patterns (patterns/) make of small operations. Each declaration has its meaning beside it: the
// small operations that it stands for, one by one as the traced program has them, rounding points included. Interpreter,
// gradient and row program all come from that. Conditions that types cannot say are in ir/dialect/Verify.cpp.
#ifndef CERMET_IR_FUSED
#define CERMET_IR_FUSED

// `decomposition` is the body of a function from the operation's accessors and a Formula `f` to its results' values.
class Cermet_Fused<string mnemonic, list<Trait> traits = []>
    : Cermet_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<DecomposableOpInterface>], traits)> {
  code decomposition = ?;
  let extraClassDefinition = [{
    ::llvm::SmallVector<::mlir::Value> $cppClass::decompose(::mlir::OpBuilder& builder) {
      Formula f(builder, getLoc());
  }] # decomposition # "\n}\n";
}

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
  let decomposition = [{
      return {f.rmsNorm(getX(), getWeight(), getResult().getType(), getEps().convertToDouble(),
                        getWeightOffset().convertToDouble(), getRoundBeforeWeight())};
  }];
}

def Cermet_AddRmsNormOp : Cermet_Fused<"add_rms_norm"> {
  let summary = "sum = x + residual; result = rms_norm(sum, weight)";
  let arguments = (ins Cermet_FloatTensor:$x, Cermet_FloatTensor:$residual, Cermet_FloatTensor:$weight, F64Attr:$eps,
                   DefaultValuedAttr<F64Attr, "0.0">:$weight_offset, UnitAttr:$round_before_weight);
  let results = (outs Cermet_FloatTensor:$result, Cermet_FloatTensor:$sum);
  let assemblyFormat = [{$x `,` $residual `,` $weight attr-dict
    `:` type($x) `,` type($residual) `,` type($weight) `to` type($result) `,` type($sum)}];
  let hasVerifier = 1;
  let decomposition = [{
      Type type = getSum().getType().getElementType();
      Value sum = f.add(f.cast(getX(), type), f.cast(getResidual(), type));
      return {f.rmsNorm(sum, getWeight(), getResult().getType(), getEps().convertToDouble(),
                        getWeightOffset().convertToDouble(), getRoundBeforeWeight()),
              sum};
  }];
}

def Cermet_GluOp : Cermet_Fused<"glu", [SameOperandsAndResultType]> {
  let summary = "activation(gate) * up; the activation is rounded to gate's type first, as traced";
  let description = [{`activation` is `silu`, `gelu` or `gelu_tanh`.}];
  let arguments = (ins Cermet_FloatTensor:$gate, Cermet_FloatTensor:$up,
                   DefaultValuedAttr<StrAttr, "\"silu\"">:$activation);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$gate `,` $up attr-dict `:` type($result)";
  let hasVerifier = 1;
  let decomposition = [{
      return {f.mul(f.activation(getActivation(), getGate()), getUp())};
  }];
}

def Cermet_PackedGluOp : Cermet_Fused<"packed_glu"> {
  let summary = "glu(gate, up) of the two halves of one tensor's last dimension; gate first, or up first with `up_first`";
  let arguments = (ins Cermet_FloatTensor:$packed, DefaultValuedAttr<StrAttr, "\"silu\"">:$activation,
                   UnitAttr:$up_first);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$packed attr-dict `:` type($packed) `to` type($result)";
  let hasVerifier = 1;
  let decomposition = [{
      Dimensions half = dimensions(cast<RankedTensorType>(getResult().getType()));
      SmallVector<int64_t> starts(half.size(), 0);
      Value first = f.slice(getPacked(), starts, half);
      starts.back() = half.back().size;
      Value second = f.slice(getPacked(), starts, half);
      if (getUpFirst())
        std::swap(first, second);
      return {f.mul(f.activation(getActivation(), first), second)};
  }];
}

def Cermet_SoftcapOp : Cermet_Fused<"softcap", [SameOperandsAndResultType]> {
  let summary = "cap * tanh(x / cap), each step rounded to x's type";
  let arguments = (ins Cermet_FloatTensor:$x, F64Attr:$cap);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($result)";
  let decomposition = [{
      Value cap = f.number(getX().getType(), getCap().convertToDouble());
      return {f.mul(f.tanh(f.div(getX(), cap)), cap)};
  }];
}

#endif
