# Compilers' flags and how MLIR and LLVM are linked: headers and tblgen come from Debian's packages, the static archives
# are linked by path. (Their exported targets name the shared libMLIR and libLLVM, which must not enter a process that
# holds torch's own LLVM.)

set(CERMET_SANITIZE "" CACHE STRING "Comma-separated sanitizers, e.g. address,undefined")
add_library(cermet_flags INTERFACE)
target_include_directories(cermet_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(cermet_flags INTERFACE -Wall -Wextra -Werror -Wno-unused-parameter -ffunction-sections -fdata-sections)
# Clang says of GCC 12's own std::stable_sort that what it uses is deprecated.
target_compile_options(cermet_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(CERMET_SANITIZE)
  target_compile_options(cermet_flags INTERFACE -fsanitize=${CERMET_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(cermet_flags INTERFACE -fsanitize=${CERMET_SANITIZE})
endif()

find_package(LLVM REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/llvm)
find_package(MLIR REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "Cermet builds with LLVM and MLIR 22, found ${LLVM_PACKAGE_VERSION}; apt install llvm-22-dev libmlir-22-dev")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

find_program(CERMET_LLD NAMES ld.lld-22 ld.lld HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)

# Headers of MLIR for a target whose final link happens elsewhere.
add_library(cermet_mlir_headers INTERFACE)
target_include_directories(cermet_mlir_headers SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_link_libraries(cermet_mlir_headers INTERFACE cermet_flags)

# What nearly every file that knows the dialect reads first is parsed once: half of such a file's time. A file still
# includes what it uses; -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
set(cermet_dialect_headers <ir/dialect/Ops.h> <mlir/Dialect/Func/IR/FuncOps.h> <algorithm> <functional> <map> <optional>
  <string> <vector>)
# What many files read that do not know it, likewise.
set(cermet_plain_headers <fmt/format.h> <nlohmann/json.hpp> <algorithm> <chrono> <filesystem> <fstream> <functional> <map>
  <mutex> <optional> <string> <thread> <vector>)

# The archives themselves, for a shared library or an executable.
file(GLOB mlir_archives ${LLVM_LIBRARY_DIR}/libMLIR*.a)
list(FILTER mlir_archives EXCLUDE REGEX "CAPI|Python|Test")
file(GLOB llvm_archives ${LLVM_LIBRARY_DIR}/libLLVM*.a)
list(FILTER llvm_archives EXCLUDE REGEX
  "LLVM(AArch64|AMDGPU|ARC|ARM|AVR|BPF|CSKY|DirectX|Hexagon|Lanai|LoongArch|M68k|MSP430|Mips|NVPTX|PowerPC|RISCV|SPIRV|Sparc|SystemZ|VE|WebAssembly|XCore|Xtensa)|Test|Exegesis")
set(lld_archives ${LLVM_LIBRARY_DIR}/liblldELF.a ${LLVM_LIBRARY_DIR}/liblldCommon.a)
add_library(cermet_mlir_archives INTERFACE)
target_link_libraries(cermet_mlir_archives INTERFACE
  -Wl,--start-group ${lld_archives} ${mlir_archives} ${llvm_archives} -Wl,--end-group -l:libz.a -l:libzstd.a dl pthread m)
target_link_options(cermet_mlir_archives INTERFACE -fuse-ld=lld -B${LLVM_TOOLS_BINARY_DIR} -Wl,--gc-sections)
# With nothing of them for others to see, and as small as that can be.
add_library(cermet_mlir_static INTERFACE)
target_link_libraries(cermet_mlir_static INTERFACE cermet_mlir_archives)
target_link_options(cermet_mlir_static INTERFACE -Wl,--exclude-libs,ALL -Wl,--icf=all)
