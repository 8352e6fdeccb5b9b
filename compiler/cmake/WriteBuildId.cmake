# The build's identity: a hash of every file that can decide a plan, a match, a gradient or a kernel. No list is kept
# that a new file could be missing from: it is all of the rooms that compile, and what they include of other rooms.
#   cmake -DSOURCE=<tree> -DLLVM=<version> -DOUTPUT=<BuildId.h> -P WriteBuildId.cmake

cmake_minimum_required(VERSION 3.25)
# Paths below `source`, of the rooms first; hidden files are an editor's.
function(deciding_files source result)
  set(rooms ir patterns compiler)
  list(TRANSFORM rooms PREPEND ${source}/)
  list(TRANSFORM rooms APPEND /*)
  file(GLOB_RECURSE waiting RELATIVE ${source} ${rooms})
  list(FILTER waiting EXCLUDE REGEX "(^|/)\\.")
  set(files "")
  while(waiting)
    list(POP_FRONT waiting file)
    if(file IN_LIST files)
      continue()
    endif()
    list(APPEND files ${file})
    file(STRINGS ${source}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
    get_filename_component(folder ${file} DIRECTORY)
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" included "${line}")
      foreach(candidate ${included} ${folder}/${included})
        if(EXISTS ${source}/${candidate}) # not what the build generates
          list(APPEND waiting ${candidate})
        endif()
      endforeach()
    endforeach()
  endwhile()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# LLVM's version decides the host target's code. Where the tree lies is no part.
function(build_identity source llvm result)
  deciding_files(${source} files)
  set(all "LLVM ${llvm}")
  foreach(file IN LISTS files)
    file(SHA256 ${source}/${file} digest)
    string(APPEND all "\n${file} ${digest}")
  endforeach()
  string(SHA256 digest "${all}")
  string(SUBSTRING ${digest} 0 16 digest)
  set(${result} ${digest} PARENT_SCOPE)
endfunction()

if(OUTPUT)
  build_identity(${SOURCE} ${LLVM} id)
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define CERMET_BUILD_ID \"${id}\"\n") # left alone if it is the same
endif()
