# An installation is what its list says, wherever it is moved to, and serves another project: the examples, which find it by
# find_package, and a compiler that asks pkg-config.
#   cmake -DSOURCE=<tree> -DBUILD=<build> -DSCRATCH=<folder> -DLIBDIR=lib -DCC=cc -DGENERATOR=Ninja -P CheckInstalled.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${SCRATCH})

function(run) # the rest of the arguments: a command, whose output becomes `output`
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${text}")
  endif()
  set(output "${text}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/first)
file(GLOB_RECURSE files RELATIVE ${SCRATCH}/first ${SCRATCH}/first/*)
list(FILTER files EXCLUDE REGEX "cermet-targets-[a-z]+\\.cmake$") # named by the build type
set(expected bin/cermet include/cermet.h include/cermet.hpp ${LIBDIR}/cmake/cermet/cermet-config-version.cmake
  ${LIBDIR}/cmake/cermet/cermet-config.cmake ${LIBDIR}/cmake/cermet/cermet-targets.cmake ${LIBDIR}/libcermet.so
  ${LIBDIR}/libcermet.so.0 ${LIBDIR}/libcermet_compiler.so ${LIBDIR}/pkgconfig/cermet.pc)
if(NOT files STREQUAL expected)
  message(FATAL_ERROR "installed is\n  ${files}\nexpected\n  ${expected}")
endif()
set(prefix ${SCRATCH}/moved)
file(RENAME ${SCRATCH}/first ${prefix})
foreach(name CERMET_COMPILER_LIBRARY CERMET_PACKS CERMET_CACHE LD_LIBRARY_PATH)
  unset(ENV{${name}})
endforeach()
set(ENV{CERMET_CACHE_DIR} "")

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/frontends/c/examples -B ${SCRATCH}/examples -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build ${SCRATCH}/examples)
run(${SCRATCH}/examples/cermet_add_rms_norm)
if(NOT output MATCHES "host +y\\[0\\]")
  message(FATAL_ERROR "the example printed:\n${output}")
endif()
run(readelf -d ${SCRATCH}/examples/decoder/cermet_decoder)
if(NOT output MATCHES "RUNPATH\\)[^\n]*${prefix}/${LIBDIR}")
  message(FATAL_ERROR "the decoder has another library's path:\n${output}")
endif()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config --cflags --libs cermet)
string(STRIP "${output}" flags)
separate_arguments(flags)
run(${CC} -Wl,-rpath,${prefix}/${LIBDIR} ${SOURCE}/frontends/c/examples/add_rms_norm.c ${flags} -ldl -lm
  -o ${SCRATCH}/by_pkg_config)
run(${SCRATCH}/by_pkg_config)

run(${prefix}/bin/cermet compile ${SOURCE}/tests/graphs/softmax.mlir -t host -o ${SCRATCH}/softmax.cpack)
if(NOT EXISTS ${SCRATCH}/softmax.cpack)
  message(FATAL_ERROR "the installed tool wrote no pack:\n${output}")
endif()

# A version that is not this one is not found.
file(WRITE ${SCRATCH}/other/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(other NONE)\nfind_package(cermet 0.9 REQUIRED)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH}/other -B ${SCRATCH}/other/build -DCMAKE_PREFIX_PATH=${prefix}
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE text)
if(status EQUAL 0 OR NOT text MATCHES "compatible")
  message(FATAL_ERROR "version 0.9 was found:\n${text}")
endif()
file(REMOVE_RECURSE ${SCRATCH})
