# find_package(cermet): cermet::cermet, the library behind cermet.h and cermet.hpp, and cermet::tool, the command that
# compiles graphs into packs while another project is built.
include(${CMAKE_CURRENT_LIST_DIR}/cermet-targets.cmake)
