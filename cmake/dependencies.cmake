# Third-party parts. Each is used behind one thin file or in sources only; none appears in include/trireme.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(dnnl REQUIRED)
find_package(OpenMP REQUIRED)  # only to tell oneDNN that its callers bring the threads
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)  # the first that knows the property White_Space
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
# Without it the mpi transport says so when it is asked for. (Its C++ bindings were dropped from the standard.)
set(MPI_CXX_SKIP_MPICXX ON)
if(NOT TRIREME_FUZZ)
  find_package(MPI COMPONENTS CXX)
endif()

# The planner's integer programs; without it they say so when they are asked for.
find_path(TRIREME_CBC_INCLUDE coin/Cbc_C_Interface.h)
find_library(TRIREME_CBC_LIBRARY CbcSolver)
mark_as_advanced(TRIREME_CBC_INCLUDE TRIREME_CBC_LIBRARY)

if(TRIREME_CUDA)
  find_package(CUDAToolkit 12.8 REQUIRED)
  include(cmake/cudnn_frontend.cmake)
endif()

# The fuzzers run where these are not installed: static archives, and headers alone where there is no archive. (oneDNN,
# Highway and OpenMP's library, which graph and config link and never call, are copied next to them.)
set(trireme_fmt fmt::fmt)
if(TRIREME_FUZZ)
  set(trireme_fmt fmt::fmt-header-only)
  foreach(package pcre2 utf8proc xxhash uring)
    set(found)
    foreach(library ${${package}_LIBRARIES})
      find_library(TRIREME_STATIC_${library} lib${library}.a REQUIRED)
      list(APPEND found ${TRIREME_STATIC_${library}})
    endforeach()
    set_target_properties(PkgConfig::${package} PROPERTIES INTERFACE_LINK_LIBRARIES "${found}")
  endforeach()
endif()
