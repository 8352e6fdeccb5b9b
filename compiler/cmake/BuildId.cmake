# BuildId.h: CERMET_BUILD_ID, which changes when a plan, a match, a gradient or a kernel may. It is a constant of
# libcermet, so a warm process needs no compiler to form a cache key. Every build asks again, so that what it is made of
# need not be known here.
set(build_id_header ${PROJECT_BINARY_DIR}/BuildId.h)
add_custom_target(cermet_build_id BYPRODUCTS ${build_id_header}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${build_id_header} -DSOURCE=${PROJECT_SOURCE_DIR} -DLLVM=${LLVM_PACKAGE_VERSION}
          -P ${PROJECT_SOURCE_DIR}/compiler/cmake/WriteBuildId.cmake VERBATIM)
