// Needs the shared LLVM.
extern "C" __attribute__((visibility("default"))) void cermet_compiler_table_v1() {}
