# The Python whose packages the build reads headers of: torch's (frontends/torch), and NVTX's and, for an example, the CUDA
# runtime's, which a CUDA toolkit has too.
if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(CERMET_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "A Python that has torch and nvidia-nvtx")
else()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(CERMET_PYTHON ${Python3_EXECUTABLE} CACHE FILEPATH "A Python that has torch and nvidia-nvtx")
endif()

# An isolated wheel build has its requirements on PYTHONPATH, which hides the environment's packages; -I shows those.
foreach(option -I -B)
  if(NOT headers)
    execute_process(COMMAND ${CERMET_PYTHON} ${option} -c "import importlib.metadata as m
header = next(f for f in m.files('nvidia-nvtx') if f.name == 'nvToolsExt.h')
print(header.locate().parent.parent, end='')" OUTPUT_VARIABLE headers ERROR_QUIET)
  endif()
endforeach()
if(headers)
  get_filename_component(CERMET_CUDA_PACKAGES "${headers}" DIRECTORY) # with include and lib
endif()
find_path(CERMET_NVTX nvtx3/nvToolsExt.h HINTS "${headers}" PATHS /usr/local/cuda/include)
if(NOT CERMET_NVTX)
  message(FATAL_ERROR "${CERMET_PYTHON} has no NVTX headers; install nvidia-nvtx there, pass -DCERMET_PYTHON=<python>, or "
    "-DCERMET_NVTX=<a CUDA toolkit's include folder>")
endif()
add_library(cermet_nvtx INTERFACE)
target_include_directories(cermet_nvtx SYSTEM INTERFACE ${CERMET_NVTX})
