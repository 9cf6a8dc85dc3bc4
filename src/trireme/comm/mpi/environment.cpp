#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "trireme/comm/mpi/session.h"

namespace trireme::comm::mpi {
namespace {

std::optional<int> number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Slurm's "2(x3),1": the tasks of each node, here three nodes of two and one of one. Empty where it is anything else.
std::vector<int> tasks_of_nodes(std::string_view text) {
  constexpr int kMaxNodes = 1 << 20;
  std::vector<int> tasks;
  const auto take = [&](int& value) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    return error == std::errc() && value > 0;
  };
  const auto skip = [&](std::string_view expected) {
    if (!text.starts_with(expected)) return false;
    text.remove_prefix(expected.size());
    return true;
  };
  do {
    int count = 0;
    int nodes = 1;
    if (!take(count)) return {};
    if (skip("(x") && (!take(nodes) || !skip(")") || nodes > kMaxNodes)) return {};
    tasks.insert(tasks.end(), static_cast<std::size_t>(nodes), count);
  } while (skip(","));
  return text.empty() ? tasks : std::vector<int>{};
}

// The tasks of this node, of a step with `size` of them. Slurm's variables may be of the job, whose steps differ: a
// list counts if it is of so many. A node that does not know its place has at most the largest number.
std::optional<int> tasks_here(int size) {
  for (const char* variable : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const char* const text = std::getenv(variable);
    const std::vector<int> tasks = tasks_of_nodes(text == nullptr ? "" : text);
    if (std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0}) != size || tasks.empty()) continue;
    const int node = number("SLURM_NODEID").value_or(-1);
    if (node >= 0 && node < static_cast<int>(tasks.size())) return tasks[static_cast<std::size_t>(node)];
    return *std::max_element(tasks.begin(), tasks.end());
  }
  return std::nullopt;
}

std::atomic<int> found_by_mpi = 0;

}  // namespace

void found_here(int processes) { found_by_mpi = processes; }

std::optional<Launched> launched() {
  struct Known {
    const char* rank;
    const char* size;
    const char* launcher;
    const char* here;
  };
  // Slurm also sets its variables in a batch script, outside any step: there SLURM_STEP_NUM_TASKS is missing.
  constexpr Known kKnown[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "a PMI launcher", "MPI_LOCALNRANKS"},
      {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun", "MV2_COMM_WORLD_LOCAL_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun", nullptr}};
  for (const Known& known : kKnown) {
    const auto rank = number(known.rank);
    const auto size = number(known.size);
    if (!rank || !size) continue;
    if (const int found = found_by_mpi; found > 0) return Launched{*rank, *size, known.launcher, found};
    std::optional<int> here = known.here == nullptr ? std::nullopt : number(known.here);
    // srun starts what asks for PMI too; what a job was asked for as a whole is the last to ask.
    if (!here) here = tasks_here(*size);
    if (!here) here = number("SLURM_NTASKS_PER_NODE");
    return Launched{*rank, *size, known.launcher, std::min(here.value_or(*size), *size)};
  }
  return std::nullopt;
}

}  // namespace trireme::comm::mpi
