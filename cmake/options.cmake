# What every target is compiled with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRIREME_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TRIREME_CCACHE})
endif()
if(TRIREME_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)  # Hopper
  endif()
  enable_language(CUDA)
  # Kernels of Hopper's own are built where it is among the architectures: 90, 90a, 90-real, 90-virtual, native.
  set(TRIREME_HOPPER OFF)
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)(90|native|all)")
    set(TRIREME_HOPPER ON)
  endif()
  # CMake before 3.26 does not know that newer versions of nvcc have it.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
endif()

add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                     $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_options(
  trireme_options
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
            $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda -Xcompiler=-Wall,-Wextra>)
# Warnings are errors with the compiler that the tests run on; a newer one's new warnings must not stop a user.
# (Sources that are compiled together shadow each other's names, which says nothing about them.)
if(TRIREME_WERROR AND NOT TRIREME_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # (-Wrestrict is wrong about std::string.)
  target_compile_options(trireme_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror -Wno-restrict>)
endif()
# Kernels are compiled for one instruction set; Highway 1.0 otherwise refuses baselines newer than it knows.
target_compile_definitions(trireme_options INTERFACE HWY_COMPILE_ONLY_STATIC)
if(TRIREME_ARCH)
  # A target with the property TRIREME_LEVEL is compiled for that one instead.
  set(level $<TARGET_PROPERTY:TRIREME_LEVEL>)
  target_compile_options(
    trireme_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=$<IF:$<BOOL:${level}>,${level},${TRIREME_ARCH}>>)
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all -g1)
  target_link_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE})
  # Before 14, GCC stores 64-byte vectors into the heap frames of this check as if they were aligned (its bug 110027);
  # the check is on by default from 13.
  if(TRIREME_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(trireme_options INTERFACE --param=asan-use-after-return=0)
  endif()
endif()

if(TRIREME_FUZZ)
  target_compile_options(
    trireme_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
                              -fno-sanitize-recover=all -gline-tables-only -D_GLIBCXX_ASSERTIONS)
  target_link_options(trireme_options INTERFACE -fsanitize=address,undefined)
endif()

# A Release build optimises kernels fully. Compiling the rest so took most of the first build's time and no run is faster
# for it: trireme_optimize(TARGET 1) for what runs once, 2 for what large models run long. (FMA contraction belongs to
# -fexpensive-optimizations: with it, sums have the same bits at every level. At -O1 the warning is often wrong.)
function(trireme_optimize target level)
  set(options -O${level})
  if(level EQUAL 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -fexpensive-optimizations -Wno-maybe-uninitialized)
  endif()
  target_compile_options(${target} PRIVATE "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${options}>")
endfunction()

# What is of CUDA: kernels (`*.cu`), the sources around them (`*_cuda.cpp`, `cuda_kernels.cpp`) and the folders cuda/, or the
# missing.cpp there, which says that it is not there.
function(trireme_choose_cuda variable folder)
  set(chosen ${${variable}})
  if(TRIREME_CUDA)
    list(FILTER chosen EXCLUDE REGEX "/[a-z]+/cuda/missing\\.cpp$")
    if(TRIREME_CUDNN)
      list(FILTER chosen EXCLUDE REGEX "/cuda/[a-z]+_missing\\.cpp$")
    else()
      list(FILTER chosen EXCLUDE REGEX "/cuda/(cudnn|convolution|flash)\\.cpp$")
    endif()
    find_path(TRIREME_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    if(TRIREME_NCCL_INCLUDE_DIR)
      list(FILTER chosen EXCLUDE REGEX "/cuda/without_nccl\\.cpp$")
    else()
      list(FILTER chosen EXCLUDE REGEX "/cuda/nccl\\.cpp$")
    endif()
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  else()
    list(FILTER chosen EXCLUDE REGEX "/src/trireme/[a-z]+/cuda/|_cuda\\.cpp$|/cuda_kernels\\.cpp$")
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/missing.cpp ${folder}/without_nccl.cpp)
    list(FILTER kernels INCLUDE REGEX "/cuda/(missing|without_nccl)\\.cpp$")
  endif()
  set(${variable} ${chosen} ${kernels} PARENT_SCOPE)
endfunction()

# What runs in every step, not once, and what measures the bounds of that: its path under src/trireme. It is optimised fully,
# whatever its folder is.
set(TRIREME_KERNELS "_cpu\\.cpp$|^device/cpu/(onednn|stream|widened)\\.|^comm/(arithmetic|measure)\\.|^io/(checksum|shard_writer)\\.|^ops/instruction_set\\.|^ops/matmul/(few_rows|epilogue|fp8_matmul)\\.|^ops/quantize/(codes|round_to_codes)\\.|^ops/loss/sharded_cross_entropy\\.|^ops/shape/sequence_slice\\.")

# TRIREME_UNITY: sources of a folder are compiled some at a time, as one, since most of what the compiler does is to read and
# instantiate the same headers. Kernels stay by themselves: what is inlined into them, and so the bits of their results,
# must not depend on their neighbours. The fewer cores, the more sources at a time.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR TRIREME_UNITY_BATCH "128 / ${cores}")
if(TRIREME_UNITY_BATCH GREATER 64)
  set(TRIREME_UNITY_BATCH 64)
elseif(TRIREME_UNITY_BATCH LESS 4)
  set(TRIREME_UNITY_BATCH 4)
endif()
function(trireme_unity target)  # and its sources
  set(together)
  foreach(source ${ARGN})
    if(source MATCHES "^\\$<")
      continue()  # objects of another target
    endif()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src/trireme ${source})
    if(NOT path MATCHES "${TRIREME_KERNELS}|/cuda/|\\.cu$")
      list(APPEND together ${source})
    endif()
  endforeach()
  # In equal parts: the last compilers of a build then end at about the same time.
  list(LENGTH together count)
  math(EXPR parts "(${count} + ${TRIREME_UNITY_BATCH} - 1) / ${TRIREME_UNITY_BATCH}")
  set(number 0)
  foreach(source ${together})
    math(EXPR group "${number} * ${parts} / ${count}")
    math(EXPR number "${number} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
# GCC looks for garbage from 128 MiB on, again and again; what is compiled so has up to a gigabyte, most of it in use.
if(TRIREME_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(trireme_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1048576>")
endif()

# One target per folder of src/trireme; `USES` is what the folder may include. Tests (`*_test.cpp`) lie next to the
# sources and are built into one test program per folder (see tests/). `WITHOUT` are sources, as regular expressions,
# that this build has no use for. `KERNELS`: it has kernels, whose speed depends on the instruction set, so packages have
# these for each of TRIREME_LEVELS. `SPLIT`: with TRIREME_UNITY, what is no kernel is compiled as what runs once, without the
# headers that are precompiled for kernels.
function(trireme_folder name)
  cmake_parse_arguments(ARG "KERNELS;SPLIT" "" "USES;LIBRARIES;WITHOUT" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/src/trireme/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$|/main\\.cpp$")
  trireme_choose_cuda(sources ${folder})
  foreach(pattern ${ARG_WITHOUT})
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  set(kernels)
  foreach(source ${sources})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src/trireme ${source})
    if(path MATCHES "${TRIREME_KERNELS}")
      list(APPEND kernels ${source})
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
    endif()
  endforeach()
  # Kernels for Hopper's own instructions; they run on such a GPU alone, which is asked before.
  set(hopper ${sources})
  list(FILTER hopper INCLUDE REGEX "_hopper\\.cu$")
  if(hopper)
    list(REMOVE_ITEM sources ${hopper})
  endif()
  if(TRIREME_HOPPER)
    list(FILTER sources EXCLUDE REGEX "/cuda/without_hopper\\.cpp$")
  endif()
  if(hopper AND TRIREME_HOPPER)
    add_library(trireme_${name}_hopper OBJECT ${hopper})
    set_target_properties(trireme_${name}_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_link_libraries(trireme_${name}_hopper PRIVATE trireme_options)
    list(APPEND sources $<TARGET_OBJECTS:trireme_${name}_hopper>)
  endif()
  list(TRANSFORM ARG_USES PREPEND trireme_)
  if(ARG_SPLIT AND TRIREME_UNITY)
    set(rest ${sources})
    list(REMOVE_ITEM rest ${kernels})
    list(FILTER rest EXCLUDE REGEX "/cuda/|_cuda\\.cpp$|/cuda_kernels\\.cpp$|\\.cu$|^\\$<")
    list(REMOVE_ITEM sources ${rest})
    add_library(trireme_${name}_rest OBJECT ${rest})
    target_link_libraries(trireme_${name}_rest PRIVATE trireme_options ${ARG_USES} ${ARG_LIBRARIES})
    trireme_unity(trireme_${name}_rest ${rest})
    trireme_optimize(trireme_${name}_rest 1)
    list(APPEND sources $<TARGET_OBJECTS:trireme_${name}_rest>)
  endif()
  if(NOT sources)
    add_library(trireme_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(trireme_${name} STATIC ${sources})
    set(scope PUBLIC)
  endif()
  if(TRIREME_UNITY AND sources)
    trireme_unity(trireme_${name} ${sources})
  endif()
  target_link_libraries(trireme_${name} ${scope} trireme_options ${ARG_USES} ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS trireme_${name})
  if(ARG_KERNELS)
    foreach(level ${TRIREME_LEVELS})
      add_library(trireme_${name}_${level} OBJECT ${kernels})
      set_target_properties(trireme_${name}_${level} PROPERTIES TRIREME_LEVEL ${level})
      target_link_libraries(trireme_${name}_${level} PRIVATE trireme_options ${ARG_USES} ${ARG_LIBRARIES})
      set_property(GLOBAL APPEND PROPERTY TRIREME_KERNELS_${level} $<TARGET_OBJECTS:trireme_${name}_${level}>)
    endforeach()
  endif()
endfunction()
