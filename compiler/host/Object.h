// The back half of the host target: an LLVM module becomes machine code, and machine code an ELF shared object. Safe
// from several threads at once, each with its own LLVMContext. Nothing is written to a disk.
#pragma once
#include <memory>
#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace cermet {

// A machine for `level` ("x86-64-v3"): position-independent, small code model, full-width vectors. Null with `error`
// set when LLVM does not know it.
std::unique_ptr<llvm::TargetMachine> hostMachine(const std::string& level, std::string& error);

// Gives the module's functions what the machine and a library without dependencies ask for: its triple, layout and CPU,
// and no calls that the source does not make (a loop must not become memset).
void prepareHostModule(llvm::Module& module, llvm::TargetMachine& machine);

void optimizeHostModule(llvm::Module& module, llvm::TargetMachine& machine);

// False with `error` set when the back end refuses.
bool emitHostCode(llvm::Module& module, llvm::TargetMachine& machine, bool assembly, std::string& code,
                  std::string& error);

} // namespace cermet
