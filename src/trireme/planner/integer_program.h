#pragma once
#include <optional>
#include <vector>

namespace trireme::planner {

// A linear program some of whose variables are 0 or 1: minimises the sum of costs × variables within its rows.
class IntegerProgram {
 public:
  struct Term {
    int variable = 0;
    double factor = 1;
  };
  // Between 0 and 1; `whole`: one of the two.
  int add_variable(double cost, bool whole);
  void add_cost(int variable, double cost) { costs_[static_cast<std::size_t>(variable)] += cost; }
  // low ≤ sum of terms ≤ high.
  void add_row(std::vector<Term> terms, double low, double high);

  // The values of the variables; nothing: no values keep to the rows. Refuses where this build has no solver.
  std::optional<std::vector<double>> solve() const;

  std::size_t variables() const { return costs_.size(); }

 private:
  struct Row {
    std::vector<Term> terms;
    double low = 0;
    double high = 0;
  };
  std::vector<double> costs_;
  std::vector<bool> whole_;
  std::vector<Row> rows_;
};

// Whether this build can solve them.
bool has_integer_solver();

}  // namespace trireme::planner
