// FailingCalls: while one lives, calls of the C library that ask the system for something about files fail in this
// process: in test_runtime, the static runtime in it and the libraries that it is linked with. One lives at a time.
#pragma once

namespace cermet {

class FailingCalls {
public:
  enum class Which {
    None,   // they are counted
    One,    // the nth
    All,    // from the nth on
    Writes, // from the nth on what makes, writes or renames a file, as on a full disk; it can still be removed
    Locks,  // from the nth on what asks for a lock
    Short,  // none, but reads and writes handle at most 7 bytes
  };
  FailingCalls(Which which, long nth, int error);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  static long made();   // since the last one began
  static long failed(); // of those
};

} // namespace cermet
