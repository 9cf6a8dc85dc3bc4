// The one file that knows COIN-OR's branch-and-cut solver.
#include <coin/Cbc_C_Interface.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "trireme/core/error.h"
#include "trireme/planner/integer_program.h"

namespace trireme::planner {

namespace {

struct Deleter {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

// By columns, as the solver wants them.
struct Columns {
  std::vector<CoinBigIndex> start = {0};
  std::vector<int> index;
  std::vector<double> value;
};

// Costs are seconds, of which the solver takes differences below its tolerance of 1e-7 for none. In units of which the
// largest cost is ten thousand it sees those of the smallest kernels.
std::vector<double> scaled(std::vector<double> costs) {
  double largest = 0;
  for (const double cost : costs) largest = std::max(largest, std::abs(cost));
  if (largest > 0)
    for (double& cost : costs) cost *= 1e4 / largest;
  return costs;
}

struct LoadedProgram {
  Columns columns;
  std::vector<double> costs;
  std::vector<bool> whole;
  std::vector<double> low, high;  // of rows
};

// Into `values`; false: none keep to the rows.
bool solve_here(const LoadedProgram& p, bool cuts, std::span<double> values) {
  const auto count = static_cast<int>(p.costs.size());
  const std::unique_ptr<Cbc_Model, Deleter> model(Cbc_newModel());
  // No bounds of columns: from 0 on.
  Cbc_loadProblem(model.get(), count, static_cast<int>(p.low.size()), p.columns.start.data(), p.columns.index.data(),
                  p.columns.value.data(), nullptr, nullptr, p.costs.data(), p.low.data(), p.high.data());
  for (int i = 0; i < count; ++i) Cbc_setColUpper(model.get(), i, 1);
  for (int i = 0; i < count; ++i)
    if (p.whole[static_cast<std::size_t>(i)]) Cbc_setInteger(model.get(), i);
  Cbc_setLogLevel(model.get(), 0);
  // Its preprocessing (2.10.8) cuts off the best solution of some small problems, and finds others impossible.
  Cbc_setParameter(model.get(), "preprocess", "off");
  if (!cuts) Cbc_setParameter(model.get(), "cuts", "off");
  // A limit that does not depend on the machine; small problems never come to it.
  Cbc_setParameter(model.get(), "maxNodes", "2000");
  Cbc_solve(model.get());
  const double* best = Cbc_bestSolution(model.get());
  if (best != nullptr) std::copy_n(best, values.size(), values.begin());
  return best != nullptr;
}

bool write_all(int to, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(to, at, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    at += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
  return true;
}

bool read_all(int from, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(from, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

[[noreturn]] void work(const LoadedProgram& p, bool cuts, int result, pid_t parent) {
  // It ends with the thread that waits for it, however that one ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // What the library says when it stops is for its developers, and so is its memory. Who reads the caller's output does
  // not wait for this process.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (const int sink = ::open("/dev/null", O_RDWR | O_CLOEXEC); sink >= 0)
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(sink, file);
  // A caller's handlers are not for this process.
  for (const int signal : {SIGABRT, SIGINT, SIGTERM, SIGHUP}) ::signal(signal, signal == SIGABRT ? SIG_DFL : SIG_IGN);
  std::vector<double> values(p.costs.size());
  const auto found = static_cast<std::uint8_t>(solve_here(p, cuts, values) ? 1 : 0);
  const bool wrote = write_all(result, &found, 1) && write_all(result, values.data(), values.size() * sizeof(double));
  ::_exit(wrote ? 0 : 1);
}

enum class Outcome : std::uint8_t { found, impossible, stopped };

// Where the solver's numbers surprise it, an assertion in it ends its process: it has one of its own.
Outcome solve_apart(const LoadedProgram& p, bool cuts, std::span<double> values) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("no pipe to the integer solver: {}", std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    fail("no process for the integer solver: {}", std::strerror(error));
  }
  if (child == 0) {
    ::close(ends[0]);
    work(p, cuts, ends[1], parent);
  }
  ::close(ends[1]);
  std::uint8_t found = 0;
  const bool whole = read_all(ends[0], &found, 1) && read_all(ends[0], values.data(), values.size_bytes());
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return !whole ? Outcome::stopped : found != 0 ? Outcome::found : Outcome::impossible;
}

}  // namespace

bool has_integer_solver() { return true; }

std::optional<std::vector<double>> IntegerProgram::solve() const {
  LoadedProgram p;
  p.costs = scaled(costs_);
  p.whole = whole_;
  std::vector<std::vector<std::pair<int, double>>> by_column(costs_.size());
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    p.low.push_back(rows_[r].low);
    p.high.push_back(rows_[r].high);
    for (const Term& term : rows_[r].terms)
      by_column[static_cast<std::size_t>(term.variable)].emplace_back(static_cast<int>(r), term.factor);
  }
  for (const auto& column : by_column) {
    for (const auto& [row, factor] : column) {
      p.columns.index.push_back(row);
      p.columns.value.push_back(factor);
    }
    p.columns.start.push_back(static_cast<CoinBigIndex>(p.columns.index.size()));
  }
  // One process at a time: another would keep this one's pipe open.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::vector<double> values(costs_.size());
  // Another way through the same problem comes past what stopped the first.
  for (const bool cuts : {true, false}) switch (solve_apart(p, cuts, values)) {
      case Outcome::found: return values;
      case Outcome::impossible: return std::nullopt;
      case Outcome::stopped: break;
    }
  return std::nullopt;
}

}  // namespace trireme::planner
