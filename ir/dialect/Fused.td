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

def Cermet_LinearCrossEntropyOp : Cermet_Fused<"linear_cross_entropy"> {
  let summary = "the cross-entropy of labels over logits = hidden weight^T + bias, without the logits";
  let description = [{
    hidden [rows..., K], weight [columns, K], labels [rows...] and, where there is one, bias [columns]. The product is
    rounded to hidden's type; from there on everything is f32 (f64 for f64 hidden), the result too. In this order:
    logits are the product plus the bias; `softcap` c above 0 makes c tanh(logits / c) of them; a row's loss is
    -log(softmax(logits)) at its label; with `label_smoothing` s (1 - s) times that plus s times its mean over all
    columns; `z_loss` z adds z log(sum(exp(logits)))^2. A row whose label is `ignore_index` has a loss of 0.
    `reduction` is `mean` over the rows that count (NaN where none does), `sum`, or `none`: a number for each row.

    A product is somebody else's (docs/c-api.md, "A loss without logits"): in a plan this is one, and kernels.
  }];
  let arguments = (ins Cermet_FloatTensor:$hidden, Cermet_FloatTensor:$weight, Cermet_IntegerTensor:$labels,
                   Optional<Cermet_FloatTensor>:$bias, DefaultValuedAttr<StrAttr, "\"mean\"">:$reduction,
                   DefaultValuedAttr<I64Attr, "-100">:$ignore_index, DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing,
                   DefaultValuedAttr<F64Attr, "0.0">:$softcap, DefaultValuedAttr<F64Attr, "0.0">:$z_loss);
  let results = (outs Cermet_FloatTensor:$result);
  let assemblyFormat = [{$hidden `,` $weight `,` $labels (`,` $bias^)? attr-dict
    `:` type($hidden) `,` type($weight) `,` type($labels) (`,` type($bias)^)? `to` type($result)}];
  let hasVerifier = 1;
  let decomposition = [{
      Dimensions rows = dimensions(typeOf(getHidden()));
      rows.back() = dimensions(typeOf(getWeight())).front();
      RankedTensorType product = tensorType(rows, typeOf(getHidden()).getElementType());
      Value logits = f.widen(f.matmul(getHidden(), getWeight(), product, false, true));
      Type wide = typeOf(logits).getElementType();
      if (getBias())
        logits = f.add(logits, f.broadcast(f.widen(getBias()), logits.getType()));
      if (double cap = getSoftcap().convertToDouble(); cap > 0) {
        Value number = f.number(logits.getType(), cap);
        logits = f.mul(f.tanh(f.div(logits, number)), number);
      }
      rows.back() = {};
      Value labels = f.reshape(f.cast(getLabels(), builder.getI64Type()), rows);
      Value counts = f.compare("ne", labels, f.number(labels.getType(), double(static_cast<int64_t>(getIgnoreIndex()))));
      Value losses = f.crossEntropy(logits, labels, counts, getLabelSmoothing().convertToDouble(),
                                    getZLoss().convertToDouble());
      if (getReduction() == "none")
        return {f.reshape(losses, ArrayRef(rows).drop_back())};
      Value sum = f.sumRows(losses);
      if (getReduction() == "mean")
        sum = f.div(sum, f.sumRows(f.cast(counts, wide)));
      return {f.reshape(sum, {})};
  }];
}

#endif
