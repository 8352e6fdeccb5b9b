// What undefined behaviour is to a fuzzer: an end.
extern "C" [[gnu::visibility("default")]] const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1";
}
