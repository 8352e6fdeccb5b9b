# BuildId.h: hashes that change when generated code may. CERMET_BUILD_ID covers everything that decides a plan;
# CERMET_SKELETON_ID what decides a kernel's machine code for a given spec. Both are constants of libcermet, so a warm
# process needs no compiler to form a cache key. LLVM's version is part of both: it decides the host target's code.

set(build_id_header ${PROJECT_BINARY_DIR}/BuildId.h)
file(GLOB plan_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ir/*.td ${PROJECT_SOURCE_DIR}/ir/*.cpp ${PROJECT_SOURCE_DIR}/ir/*.h
  ${PROJECT_SOURCE_DIR}/patterns/*.cpp ${PROJECT_SOURCE_DIR}/patterns/*.h ${PROJECT_SOURCE_DIR}/compiler/*.cpp
  ${PROJECT_SOURCE_DIR}/compiler/*.h ${PROJECT_SOURCE_DIR}/compiler/device/*.cuh)
file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/compiler/device/*.cuh ${PROJECT_SOURCE_DIR}/compiler/Emit*.cpp
  ${PROJECT_SOURCE_DIR}/compiler/HostTarget*.cpp ${PROJECT_SOURCE_DIR}/compiler/Nvrtc.cpp ${PROJECT_SOURCE_DIR}/runtime/RowArguments.h)
add_custom_command(OUTPUT ${build_id_header}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${build_id_header} "-DPLAN=${plan_sources}" "-DKERNEL=${kernel_sources}"
          -DLLVM=${LLVM_PACKAGE_VERSION}
          -P ${PROJECT_SOURCE_DIR}/compiler/cmake/WriteBuildId.cmake
  DEPENDS ${plan_sources} ${kernel_sources} ${PROJECT_SOURCE_DIR}/compiler/cmake/WriteBuildId.cmake VERBATIM)
add_custom_target(cermet_build_id DEPENDS ${build_id_header})
