// The three streams that a process begins with. One that is closed is taken by a file that cannot be read or written:
// else the next file that is opened would get its number, and what is printed.
#pragma once
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace cermet::tools {

// To be called first.
inline void openStandardStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      // The lowest free number, and the wrong way round.
      (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

} // namespace cermet::tools
