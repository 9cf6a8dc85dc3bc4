#include <charconv>
#include <cstdlib>
#include <cstring>

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

}  // namespace

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
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun", "SLURM_NTASKS_PER_NODE"}};
  for (const Known& known : kKnown) {
    const auto rank = number(known.rank);
    const auto size = number(known.size);
    if (rank && size) return Launched{*rank, *size, known.launcher, number(known.here).value_or(*size)};
  }
  return std::nullopt;
}

}  // namespace trireme::comm::mpi
