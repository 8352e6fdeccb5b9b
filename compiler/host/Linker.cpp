#include "compiler/host/Linker.h"
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <lld/Common/Driver.h>
#include <llvm/Plugins/PassPlugin.h>
#include <llvm/Support/raw_ostream.h>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

LLD_HAS_DRIVER(elf)

// lld registers every back end that its LLVM was built with, for link-time optimisation. Only X86 is linked into this
// library; the others' registrations do nothing. (The X86 macro renames that target's stubs, which nobody calls.)
#define X86 UnusedX86
#define STUB(target, part)                                                                                             \
  extern "C" void LLVMInitialize##target##part();                                                                      \
  extern "C" void LLVMInitialize##target##part() {}
#define LLVM_TARGET(target) STUB(target, Target) STUB(target, TargetInfo) STUB(target, TargetMC)
#include <llvm/Config/Targets.def>
#define LLVM_ASM_PRINTER(target) STUB(target, AsmPrinter)
#include <llvm/Config/AsmPrinters.def>
#define LLVM_ASM_PARSER(target) STUB(target, AsmParser)
#include <llvm/Config/AsmParsers.def>
#undef STUB
#undef X86

// The same for the pass plug-ins that Debian's LLVM was built with.
#define HANDLE_EXTENSION(plugin)                                                                                       \
  llvm::PassPluginLibraryInfo get##plugin##PluginInfo();                                                               \
  llvm::PassPluginLibraryInfo get##plugin##PluginInfo() {                                                              \
    return {LLVM_PLUGIN_API_VERSION, #plugin, ""};                                                                     \
  }
#include <llvm/Support/Extension.def>

namespace cermet {
namespace {

// A file in memory with a path for lld to read.
class MemoryFile {
public:
  explicit MemoryFile(const std::string& bytes) : descriptor(memfd_create("cermet-object", MFD_CLOEXEC)) {
    for (size_t done = 0; descriptor >= 0 && done < bytes.size();) {
      ssize_t count = write(descriptor, bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno != EINTR)
        return;
      done += count > 0 ? count : 0;
      isWhole = done == bytes.size();
    }
  }
  ~MemoryFile() {
    if (descriptor >= 0)
      close(descriptor);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  bool isReady() const { return isWhole; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor); }

private:
  int descriptor;
  bool isWhole = false;
};

// A pipe with a path for lld to write to. To a regular file lld would go through a temporary one, and LLVM takes over
// the process's signal handlers to remove such files.
class OutputPipe {
public:
  OutputPipe() {
    isOpen = pipe2(ends, O_CLOEXEC) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
    if (isOpen)
      reader = std::thread([this] { read(); });
  }
  ~OutputPipe() {
    finish();
    for (int end : ends)
      if (end >= 0)
        close(end);
  }
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  bool isReady() const { return isOpen; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", ends[1]); }

  // What was written; call it once lld is done.
  const std::string& finish() {
    isDone = true;
    if (ends[1] >= 0)
      close(std::exchange(ends[1], -1));
    if (reader.joinable())
      reader.join();
    return bytes;
  }

private:
  // The end of the data is an empty pipe after lld is done: a process forked meanwhile may hold the other end open.
  void read() {
    char part[16384];
    for (;;) {
      bool isLast = isDone;
      ssize_t count = ::read(ends[0], part, sizeof part);
      if (count > 0)
        bytes.append(part, count);
      else if (count == 0 || isLast)
        return;
      pollfd wait{ends[0], POLLIN, 0};
      poll(&wait, 1, /*milliseconds=*/1);
    }
  }

  int ends[2] = {-1, -1};
  bool isOpen;
  std::atomic<bool> isDone = false;
  std::string bytes;
  std::thread reader;
};

std::string systemError(const char* what) {
  return fmt::format("host target: {}: {}", what, std::generic_category().message(errno));
}

} // namespace

bool linkHostObject(const std::string& object, std::string& image, std::string& error) {
  MemoryFile input(object);
  OutputPipe output;
  if (!input.isReady() || !output.isReady()) {
    error = systemError("cannot make a file in memory for the linker");
    return false;
  }
  std::string inputPath = input.path(), outputPath = output.path();
  const char* arguments[] = {"ld.lld",
                             "-shared",
                             "--no-undefined",
                             "--strip-all",
                             "--gc-sections",
                             "--hash-style=gnu",
                             "--build-id=none",
                             "-znoexecstack",
                             "-znorelro",
                             "-zmax-page-size=4096",
                             "--threads=1",
                             inputPath.c_str(),
                             "-o",
                             outputPath.c_str()};
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  // lld keeps state in globals and may refuse to run again after a failure that it could not unwind.
  static std::mutex mutex;
  static bool canRun = true;
  {
    std::lock_guard lock(mutex);
    if (!canRun) {
      error = "host target: the linker failed earlier in this process and cannot run again";
      return false;
    }
    lld::Result result = lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
    canRun = result.canRunAgain;
    if (result.retCode != 0) {
      error = fmt::format("host target: the linker failed: {}", messages);
      return false;
    }
  }
  image = output.finish();
  if (image.empty())
    error = "host target: the linker wrote nothing";
  return !image.empty();
}

} // namespace cermet
