#ifndef CERMET_IR_DIALECT
#define CERMET_IR_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/TensorEncoding.td"

def Cermet_Dialect : Dialect {
  let name = "cermet";
  let cppNamespace = "::cermet::ir";
  let summary = "Traced transformer subgraphs as a value graph over ranked tensors";
  let description = [{
    Every value is a ranked tensor of f32, bf16, f16, f64, f8E4M3FN, f8E5M2, an integer type or i1. A dimension is static
    or carries the name of a symbol: `tensor<?x4096xbf16, #cermet.symbols<["rows"]>>` names its `?` dimensions from left
    to right, and two dimensions are equal exactly when their types say so. Casts are ordinary operations: the rounding
    points of the traced program are part of its meaning. An elementwise operation computes in the widest float type and
    rounds its result once, to its result type.
  }];
  let useDefaultAttributePrinterParser = 1;
}

def Cermet_SymbolsAttr : AttrDef<Cermet_Dialect, "Symbols", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "symbols";
  let summary = "The names of a tensor type's dynamic dimensions, left to right";
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$names);
  let assemblyFormat = "`<` `[` $names `]` `>`";
}

#endif
