#pragma once
#include <functional>

#include "trireme/comm/communicator.h"
#include "trireme/core/error.h"

namespace trireme::cli {

// Runs `body` in each of the processes that mpirun or srun has started, which its communicator joins; null where there
// is one process. The first prints for all: the standard output of the others goes nowhere. An error of one ends all of
// them, is reported once, and its code is everybody's. `timeout`: seconds that one may wait for another.
int on_all_processes(double timeout, const std::function<int(comm::Communicator* world)>& body);
// The same after `prepare`, which gives the timeout: what it throws is reported once too.
int on_all_processes(const std::function<double()>& prepare, const std::function<int(comm::Communicator* world)>& body);

// What is wrong with a command line is wrong in every process: one of them says it. Gives the code to exit with.
int report_from_one(const Error& e);

// The processes that mpirun or srun has started; 1: there is no launcher.
int launched_processes();
// Of them, those on this machine; 0 where there is one process, whose ranks are threads.
int processes_here();
// Whether this process speaks for all.
bool is_first_process();

}  // namespace trireme::cli
