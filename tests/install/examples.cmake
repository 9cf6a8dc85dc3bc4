# Installs the build in BUILD to a folder of its own; then, with nothing but that: compiles every public header alone,
# builds each example of SOURCE/examples and runs it for a few steps.
set(work ${BUILD}/install_test)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})

function(run what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${work} RESULT_VARIABLE code OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what}: exit ${code}\n${output}")
  endif()
  message(STATUS "${what}")
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected ${pattern} in\n${output}")
  endif()
endfunction()

run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

# The table of options is included by headers and is none itself.
file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/trireme/*.h ${prefix}/include/trireme/options.def)
set(sources)
foreach(header ${headers})
  if(header MATCHES "\\.h$")
    string(MAKE_C_IDENTIFIER ${header} name)
    file(WRITE ${work}/headers/${name}.cpp "#include <${header}>\n")
    list(APPEND sources ${work}/headers/${name}.cpp)
  endif()
  file(STRINGS ${prefix}/include/${header} foreign REGEX "#include +[<\"]")
  list(FILTER foreign EXCLUDE REGEX "<trireme/[a-z0-9_]+\\.h>|<trireme/options\\.def>|<[a-z_]+>")
  if(foreign)
    message(FATAL_ERROR "${header} includes more than the standard library and public headers: ${foreign}")
  endif()
endforeach()
run("each header alone" ${COMPILER} -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only
    -I${prefix}/include ${sources})

run("the installed program" ${prefix}/bin/trireme --version)

run("configure bytelm" ${CMAKE_COMMAND} -S ${SOURCE}/examples/bytelm -B ${work}/bytelm -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_BUILD_TYPE=Release
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Werror")
run("build bytelm" ${CMAKE_COMMAND} --build ${work}/bytelm)

run("bytelm" ${work}/bytelm/bytelm --steps 5 --layers 2 --width 64 --text ${SOURCE}/include --save ${work}/run)
expect("step +5 .*saved")

# Its run is one that its commands understand.
set(small --model.family=bytelm --model.layers=2 --model.width=64 --model.context=64 --train.batch=4
    --data.text=${SOURCE}/include)
run("bytelm-cli train" ${work}/bytelm/bytelm-cli train --train.steps=5 ${small} --output.dir=${work}/cli-run)
expect("bytelm 2×64")
run("bytelm-cli generate" ${work}/bytelm/bytelm-cli generate --from ${work}/cli-run --prompt "Value " --tokens 8)
run("bytelm-cli memory" ${work}/bytelm/bytelm-cli memory ${small} --json)
expect("predicted_peak_bytes")
run("bytelm-cli generate, from the other run" ${work}/bytelm/bytelm-cli generate --from ${work}/run --prompt "Value "
    --tokens 8)

foreach(example collectives finetune prices regression)
  run("configure ${example}" ${CMAKE_COMMAND} -S ${SOURCE}/examples/${example} -B ${work}/${example} -G ${GENERATOR}
      -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_BUILD_TYPE=Release
      "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Werror")
  run("build ${example}" ${CMAKE_COMMAND} --build ${work}/${example})
endforeach()
run("collectives, as threads" ${work}/collectives/collectives)
expect("worker 0: all-reduce of .1, 2, 3. is .2, 2, 4., all-gather of .1, 2. is .1, 2, 3, 4.")
if(MPI)
  run("collectives, as processes" ${SOURCE}/tests/mpi/launch 2 ${work}/collectives/collectives)
  expect("worker 1: all-reduce of .1, 0, 1. is .2, 2, 4., all-gather of .3, 4. is .1, 2, 3, 4.")
endif()
run("regression" ${work}/regression/regression 20000 2)
expect("alone .* loss 0.079.*reduced .* loss 0.079.*ranks .* loss 0.079")
file(WRITE ${work}/book.txt "")
foreach(i RANGE 100)
  file(APPEND ${work}/book.txt "the trireme has three rows of oars, and the wind does the rest ${i}\n")
endforeach()
run("finetune" ${work}/finetune/finetune ${SOURCE}/tests/huggingface/gpt2-tied book.txt tuned 3)
expect("step 3.*held-out loss")
foreach(mesh dp=2 pp=2)
  run("prices, ${mesh}" ${work}/prices/prices 300 ${mesh})
  expect("parameters, held-out loss 1\\.[0-9].*held-out loss 0\\.00.*price 1\\.1")
endforeach()
run("the tuned model" ${prefix}/bin/trireme generate --from tuned --prompt "the " --tokens 4)
