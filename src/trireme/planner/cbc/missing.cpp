// In the place of solve.cpp where CBC was not found.
#include "trireme/core/error.h"
#include "trireme/planner/integer_program.h"

namespace trireme::planner {

bool has_integer_solver() { return false; }

std::optional<std::vector<double>> IntegerProgram::solve() const {
  refuse("this build has no integer solver: install coinor-libcbc-dev and configure again");
}

}  // namespace trireme::planner
