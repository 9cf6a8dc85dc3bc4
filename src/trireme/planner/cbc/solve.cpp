// The one file that knows COIN-OR's branch-and-cut solver.
#include <coin/Cbc_C_Interface.h>

#include <memory>
#include <mutex>

#include "trireme/planner/integer_program.h"

namespace trireme::planner {

namespace {

struct Deleter {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

}  // namespace

bool has_integer_solver() { return true; }

std::optional<std::vector<double>> IntegerProgram::solve() const {
  const auto columns = static_cast<int>(costs_.size());
  // By columns, as the solver wants them.
  std::vector<std::vector<std::pair<int, double>>> by_column(costs_.size());
  std::vector<double> low, high;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    low.push_back(rows_[r].low);
    high.push_back(rows_[r].high);
    for (const Term& term : rows_[r].terms)
      by_column[static_cast<std::size_t>(term.variable)].emplace_back(static_cast<int>(r), term.factor);
  }
  std::vector<CoinBigIndex> start = {0};
  std::vector<int> index;
  std::vector<double> value;
  for (const auto& column : by_column) {
    for (const auto& [row, factor] : column) {
      index.push_back(row);
      value.push_back(factor);
    }
    start.push_back(static_cast<CoinBigIndex>(index.size()));
  }
  // The library keeps parameters and statistics in variables of its own that two models would share.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // No bounds of columns: from 0 on.
  const std::unique_ptr<Cbc_Model, Deleter> model(Cbc_newModel());
  Cbc_loadProblem(model.get(), columns, static_cast<int>(rows_.size()), start.data(), index.data(), value.data(),
                  nullptr, nullptr, costs_.data(), low.data(), high.data());
  for (int i = 0; i < columns; ++i) Cbc_setColUpper(model.get(), i, 1);
  for (int i = 0; i < columns; ++i)
    if (whole_[static_cast<std::size_t>(i)]) Cbc_setInteger(model.get(), i);
  Cbc_setLogLevel(model.get(), 0);
  // A limit that does not depend on the machine; small problems never come to it.
  Cbc_setParameter(model.get(), "maxNodes", "2000");
  Cbc_solve(model.get());
  const double* best = Cbc_bestSolution(model.get());
  if (best == nullptr) return std::nullopt;
  return std::vector<double>(best, best + columns);
}

}  // namespace trireme::planner
