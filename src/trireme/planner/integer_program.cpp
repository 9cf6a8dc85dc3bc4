#include "trireme/planner/integer_program.h"

namespace trireme::planner {

int IntegerProgram::add_variable(double cost, bool whole) {
  costs_.push_back(cost);
  whole_.push_back(whole);
  return static_cast<int>(costs_.size()) - 1;
}

void IntegerProgram::add_row(std::vector<Term> terms, double low, double high) {
  rows_.push_back({std::move(terms), low, high});
}

}  // namespace trireme::planner
