// Exports more than the table.
extern "C" __attribute__((visibility("default"))) void cermet_compiler_table_v1() {}
extern "C" __attribute__((visibility("default"))) void another_symbol() {}
