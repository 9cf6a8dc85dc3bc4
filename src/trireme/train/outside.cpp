#include "trireme/train/outside.h"

#include <algorithm>
#include <set>

#include "trireme/comm/scratch.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/runtime/executor.h"
#include "trireme/runtime/staging.h"
#include "trireme/runtime/trace.h"
#include "trireme/train/loader_depth.h"

namespace trireme::train {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

// Stated, not derived: what was measured (docs/memory.md has the commands), and somewhat more.
constexpr std::uint64_t kProcess = 48 * kMiB;             // the program, its libraries, what is too small to list
constexpr std::uint64_t kMpi = 16 * kMiB;                 // its libraries, and what it shares with other processes
constexpr std::uint64_t kMpiRank = kMiB;                  // and more of that for each further rank of the run
constexpr std::uint64_t kGpu = 576 * kMiB;                // of a GPU: context, kernels and libraries
constexpr std::uint64_t kRecorded = 10 * kKiB;            // of a GPU, for each instruction of a recorded step
constexpr std::uint64_t kFlush = 256 * kMiB;              // of a GPU, while algorithms are tried (device/cuda/gemm.cpp)
constexpr std::uint64_t kThread = kMiB;                   // stack, allocator and what libraries keep for each
constexpr std::uint64_t kNode = 5 * kKiB;                 // of a role's graphs, while passes rewrite them too
constexpr std::uint64_t kInstruction = 3 * kKiB / 2;      // of a role's programs
constexpr std::uint64_t kRankInstruction = 3 * kKiB / 2;  // prepared by a rank's executor

std::uint64_t bytes_of(const data::Batch& batch) {
  std::uint64_t bytes = 0;
  data::each_values(batch, [&](const auto& values, bool) { bytes += values.size() * sizeof(values[0]); });
  return bytes;
}

std::uint64_t row_bytes(const data::Dataset& set) {
  data::Batch batch;
  batch.rows = 1;
  set.resize(batch, 1);
  // In 16 bits too, at most.
  std::size_t narrow = batch.images.size();
  for (const data::NamedRows& input : batch.inputs) narrow += input.floats.size();
  return bytes_of(batch) + narrow * sizeof(std::uint16_t);
}

std::uint64_t nodes(const Role& role) {
  std::uint64_t sum = 0;
  for (const ir::Graph& graph : role.module.graphs) sum += graph.nodes.size();
  return sum;
}

std::uint64_t instructions(const Role& role) {
  std::uint64_t sum = 0;
  for (const program::Program& p : role.programs) sum += p.instructions.size();
  return sum;
}

// What the kernels of a rank's programs allocate on this machine when they are prepared.
std::uint64_t kernel_bytes(const Role& role) {
  std::uint64_t sum = 0;
  for (const program::Program& p : role.programs) {
    std::set<std::string> prepared;
    for (const program::Instruction& i : p.instructions) {
      if (i.kind != program::Instruction::Kind::launch) continue;
      const auto kernel = i.op->kernels.find(i.on_host ? device::Kind::cpu : p.device);
      if (kernel == i.op->kernels.end() || !kernel->second.own) continue;
      if (!prepared.insert(runtime::kernel_signature(i)).second) continue;
      ir::Types inputs;
      ir::Types outputs;
      for (const program::Operand& o : i.inputs) inputs.push_back(o.type);
      for (const program::Operand& o : i.outputs) outputs.push_back(o.type);
      sum += kernel->second.own({inputs, outputs, i.attributes, p.threads, i.accumulate});
    }
  }
  return sum;
}

// Of the groups that the `ranks` from `first` on meet in, their parts.
std::uint64_t message_bytes(const Compiled& compiled, int first, int ranks) {
  std::uint64_t sum = 0;
  if (compiled.ranks() > kMaxThreadRanks) return sum;
  for (const program::Group& group : compiled.groups)
    for (int r = first; r < first + ranks; ++r)
      if (const std::size_t members = compiled.members(group, r).size(); members > 0)
        sum += (comm::group_bytes(compiled.plan.transport, static_cast<int>(members)) + members - 1) / members;
  return sum;
}

// Of a GPU's program: its inputs on their way there, and parts of what goes to and from the disk.
std::uint64_t pinned_bytes(const program::Program& program) {
  constexpr std::uint64_t kDiskPart = 32 * kMiB;  // of each stream (runtime/disk_copies.cpp)
  std::uint64_t sum = 0;
  std::set<int> streams;
  for (const program::Instruction& i : program.instructions) {
    if (i.kind == program::Instruction::Kind::input) sum += program::aligned(i.outputs.front().type.bytes());
    if (i.moves() && program.tier_bytes[program::kDiskTier] > 0) streams.insert(i.stream);
  }
  return sum + streams.size() * kDiskPart;
}

}  // namespace

// Libraries are used by launches that have scratch. A product has at most four tensors of its result's size in addition
// to the result: what it adds to, its argument, and what the first algorithm gave of both. Convolutions are tried in
// room for f32.
std::uint64_t search_bytes(const program::Program& program) {
  constexpr std::uint64_t kResults = 5;
  const auto bytes = [](const program::Operand& o) {
    const std::uint64_t element = std::max<std::uint64_t>(sizeof(float), size_of(o.type.dtype));
    return o.type.present ? program::aligned(static_cast<std::uint64_t>(o.type.elements()) * element) : 0;
  };
  std::uint64_t most = 0;
  for (const program::Instruction& i : program.instructions) {
    if (i.kind != program::Instruction::Kind::launch || i.on_host || i.workspace.buffer == program::kNone) continue;
    std::uint64_t sum = kFlush + i.workspace.type.bytes();
    for (const program::Operand& o : i.inputs) sum += bytes(o);
    for (const program::Operand& o : i.outputs) sum += kResults * bytes(o);
    most = std::max(most, sum);
  }
  return most;
}

std::vector<Outside> outside(const Config& config, const data::Data& data, const Compiled& compiled, int first,
                             int ranks, int threads) {
  std::vector<Outside> all;
  const auto add = [&](std::string name, std::string what, std::uint64_t bytes) {
    if (bytes > 0) all.push_back({std::move(name), std::move(what), bytes});
  };
  data::DataMemory samples;
  for (const auto& set : {data.train, data.eval})
    if (set) samples += set->memory();
  add("data", "samples in memory", samples.held);
  add("encoding", "what turning text into tokens took", data.encoding_bytes);
  add("tokenizer", "its tables, and its file as it was read", data.tokenizer ? data.tokenizer->bytes() : 0);
  if (samples.mapped > 0)
    all.push_back({.name = "files",
                   .what = "mapped files of samples, as far as they are read",
                   .bytes = samples.mapped,
                   .of_files = true});

  // Each replica's rows are read once; ranks at their own pace have a loader each.
  std::vector<ir::Range> read;
  for (int r = first; r < first + ranks; ++r)
    if (compiled.role_of(r).takes_rows()) read.push_back(compiled.rows_read(r));
  std::sort(read.begin(), read.end(), [](const ir::Range& a, const ir::Range& b) { return a.first < b.first; });
  std::int64_t read_rows = 0;
  std::int64_t end = 0;
  for (const ir::Range& range : read) {
    read_rows += std::max<std::int64_t>(0, range.last - std::max(range.first, end));
    end = std::max(end, range.last);
  }
  const auto rows = static_cast<std::uint64_t>(read_rows);
  const auto ahead = static_cast<std::uint64_t>(loader_depth(compiled)) + 2;  // being made, and being used
  std::uint64_t row = data.train ? row_bytes(*data.train) : 0;
  add("batches", fmt::format("{} read ahead, and one of evaluation", ahead),
      row * rows * (ahead * static_cast<std::uint64_t>(compiled.micro_batches) + 1));

  add("trace", "spans of runtime.trace", config.runtime.trace.empty() ? 0 : kTraceSpans * sizeof(runtime::Trace::Span));
  std::uint64_t programs = 0;
  for (const Role& role : compiled.roles) programs += nodes(role) * kNode + instructions(role) * kInstruction;
  for (int r = first; r < first + ranks; ++r) programs += instructions(compiled.role_of(r)) * kRankInstruction;
  add("programs", "graphs, programs and prepared kernels", programs);
  std::uint64_t kernels = 0;
  for (int r = first; r < first + ranks; ++r) kernels += kernel_bytes(compiled.role_of(r));
  add("kernels", "what convolutions need on this CPU beyond their workspaces", kernels);
  add("threads", fmt::format("{} rank{} of {} and their streams", ranks, ranks == 1 ? "" : "s", threads),
      static_cast<std::uint64_t>(ranks) * (static_cast<std::uint64_t>(threads) + 2) * kThread);
  add("messages", "small messages of ranks that are threads", message_bytes(compiled, first, ranks));
  if (compiled.plan.transport == comm::TransportKind::mpi)
    add("mpi", "MPI's libraries and buffers", kMpi + static_cast<std::uint64_t>(compiled.ranks()) * kMpiRank);
  if (compiled.device() != device::Kind::cpu) {
    std::uint64_t pinned = 0;
    for (int r = first; r < first + ranks; ++r)
      for (const program::Program& program : compiled.role_of(r).programs) pinned += pinned_bytes(program);
    add("pinned", "inputs of GPUs, and what goes through the host to the disk", pinned);
  }
  add("process", "program and libraries, and what is too small to list", kProcess);

  if (compiled.device() != device::Kind::cpu) {
    std::uint64_t recorded = 0;  // by the ranks that may share one
    std::uint64_t ahead_on_gpu = 0;
    std::uint64_t searched = 0;
    for (int r = first; r < first + ranks; ++r) {
      const Role& role = compiled.role_of(r);
      recorded += instructions(role) * kRecorded;
      std::uint64_t most = 0;
      for (const program::Program& program : role.programs) most = std::max(most, search_bytes(program));
      searched += most;
      if (const program::Program* step = role.find(compiled.steps.back().program))
        ahead_on_gpu += runtime::bytes_ahead(*step);
    }
    all.push_back({.name = "gpu",
                   .what = "the driver's context, kernels, libraries, the recorded step and a batch ahead, of each GPU",
                   .bytes = kGpu + recorded + ahead_on_gpu,
                   .on_gpu = true});
    all.push_back({.name = "search",
                   .what = "trying algorithms of the GPU's libraries, never more than half of what is free there",
                   .bytes = searched,
                   .on_gpu = true,
                   .at_first = true});
  }
  std::uint64_t saved = 0;
  for (const ir::State& state : compiled.saved_states())
    saved += TensorType{state.type.dtype, state.global_shape()}.bytes();
  all.push_back({.name = "checkpoint",
                 .what = "files of the checkpoint, mapped while they are checked and read",
                 .bytes = saved,
                 .when_resumed = true,
                 .of_files = true});
  return all;
}

int largest_process(const Config& config, const data::Data& data, const Compiled& compiled, int threads) {
  // Ranks of one role take the same.
  std::set<std::size_t> roles;
  int largest = 0;
  std::uint64_t most = 0;
  for (int rank = 0; rank < compiled.ranks(); ++rank) {
    if (!roles.insert(compiled.seat(rank).role).second) continue;
    const std::uint64_t bytes =
        compiled.role_of(rank).arena_bytes + outside_bytes(outside(config, data, compiled, rank, 1, threads), false);
    if (bytes > most) {
      largest = rank;
      most = bytes;
    }
  }
  return largest;
}

std::uint64_t outside_bytes(const std::vector<Outside>& all, bool resumed) {
  std::uint64_t sum = 0;
  for (const Outside& one : all)
    if (!one.on_gpu && (resumed || !one.when_resumed)) sum += one.bytes;
  return sum;
}

std::uint64_t needed_bytes(const std::vector<Outside>& all) {
  std::uint64_t sum = 0;
  for (const Outside& one : all)
    if (!one.on_gpu && !one.of_files) sum += one.bytes;
  return sum;
}

}  // namespace trireme::train
