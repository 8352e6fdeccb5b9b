#include "compiler/host/Module.h"
#include "compiler/host/Program.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "runtime/abi/RowArguments.h"
#include <cstddef>

using namespace mlir;

namespace cermet {
namespace {

// Calls each program for its part of the rows, which are numbered through.
void emitBeside(const KernelSpec& spec, ArrayRef<std::string> names, StringRef name, ModuleOp module) {
  ImplicitLocOpBuilder builder(module.getLoc(), module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  Type i64 = builder.getI64Type(), pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), {pointer, i64, i64, i64, pointer});
  Block* entry = LLVM::LLVMFuncOp::create(builder, name, type).addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  Value begin = entry->getArgument(1), end = entry->getArgument(2);
  Value zero = arith::ConstantIntOp::create(builder, 0, 64);
  size_t offset = 0;
  for (auto [each, callee] : llvm::zip(spec.programs, names)) {
    auto at = [&](size_t bytes) -> Value {
      return LLVM::GEPOp::create(builder, pointer, builder.getI8Type(), entry->getArgument(0),
                                 ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
    };
    Value rows = LLVM::LoadOp::create(builder, i64, at(offset + offsetof(RowArguments, rows)), 8);
    Value first = arith::MaxSIOp::create(builder, begin, zero), last = arith::MinSIOp::create(builder, end, rows);
    // The arguments of a program without rows say nothing.
    Value any = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, first, last);
    scf::IfOp::create(builder, any, [&](OpBuilder& inner, Location location) {
      LLVM::CallOp::create(inner, location, TypeRange(), callee,
                           ValueRange{at(offset), first, last, entry->getArgument(3), entry->getArgument(4)});
      scf::YieldOp::create(inner, location);
    });
    begin = arith::SubIOp::create(builder, begin, rows);
    end = arith::SubIOp::create(builder, end, rows);
    offset += argumentBytes(each.program.operands.size());
  }
  LLVM::ReturnOp::create(builder, ValueRange());
}

} // namespace

OwningOpRef<ModuleOp> hostModule(const KernelSpec& spec, const HostEntries& entries, MLIRContext& context,
                                 bool hasF16C) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context), spec.name());
  if (spec.programs.size() == 1) {
    emitHostProgram(spec.programs[0].program, entries, *module, LLVM::Linkage::External, hasF16C);
    return module;
  }
  SmallVector<std::string> names;
  for (auto [index, each] : llvm::enumerate(spec.programs)) {
    names.push_back(entries.main + "_" + std::to_string(index));
    emitHostProgram(each.program, {names.back(), ""}, *module, LLVM::Linkage::Internal, hasF16C);
  }
  emitBeside(spec, names, entries.main, *module);
  return module;
}

} // namespace cermet
