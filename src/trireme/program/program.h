#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/device/kernel.h"
#include "trireme/ir/graph.h"

namespace trireme::program {

// What bytes are for: the rows of the memory table.
enum class Category : std::uint8_t { weights, gradients, optimizer, activations, workspace, staging };
inline constexpr int kCategories = 6;
const char* name_of(Category category);

using BufferId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

// Where bytes can be, as ir::State::tier counts: the device's own memory, the host's, the disk's.
inline constexpr int kTiers = 3;
inline constexpr int kHostTier = 1;  // pinned; of a device that is not the CPU itself
inline constexpr int kDiskTier = 2;
const char* tier_name(int tier);

inline constexpr std::size_t kAlignment = 64;
// What copies between tiers move: whole pages.
inline constexpr std::size_t kPage = 4096;
std::size_t aligned(std::size_t bytes, std::size_t alignment = kAlignment);

// A range of its tier's memory. Offsets are multiples of its alignment.
struct Buffer {
  std::string name;  // of the value or state it holds first
  std::size_t bytes = 0;
  std::size_t offset = 0;
  Category category = Category::activations;
  ir::StateId state = kNone;   // persistent: this state's storage, alive before and after the program; or kStaging
  std::int32_t first = kNone;  // first and last instruction that touches it
  std::int32_t last = kNone;
  int tier = 0;
  std::size_t alignment = kAlignment;  // kPage where copies to or from another tier touch it; its size then too

  // What a copy between tiers touches of `count` bytes of it: whole pages, but of states on the device, which lie as
  // they do.
  std::size_t moved(std::size_t count) const { return aligned(count, alignment == kPage ? kPage : 1); }
};
// In place of a state: memory next to the state in which checkpoints are staged, step after step.
inline constexpr ir::StateId kStaging = -2;

// The part of a buffer that belongs to a rank: which one depends on its place along a mesh axis, so that ranks share
// one program.
struct Place {
  std::int32_t axis = kNone;  // index in the mesh; kNone: the same for every rank
  std::int32_t count = 1;     // places along it
  std::size_t stride = 0;     // bytes from one to the next
  friend bool operator==(const Place&, const Place&) = default;
};

struct Operand {
  BufferId buffer = kNone;  // kNone: an absent optional operand
  TensorType type = TensorType::none();
  std::size_t offset = 0;  // in the buffer: some rows of it
  Place place = {};        // further on, by rank
  // What its bytes hold: read, it must be there; written, it is there from then on. A number of Program::values.
  std::int32_t value = kNone;

  // From `offset` on: what it may touch, whichever the rank.
  std::size_t extent() const { return type.bytes() + place.stride * static_cast<std::size_t>(place.count - 1); }
};

// One step of a rank's program: plain data.
struct Instruction {
  enum class Kind : std::uint8_t {
    launch,      // run op's kernel
    collective,  // run op together with the other ranks along its axis
    push,        // send input 0 to a rank beyond the mesh, by op's peer and key; output 0 says that it has left
    pull,        // output 0 = what that rank sends
    send,        // send input 0 to another stage's rank, by op's channel; output 0 says that it has left
    receive,     // output 0 = what that rank sends
    input,       // fill output 0 with the graph input `name` of micro-batch `micro`
    copy,        // output 0 = input 0, byte for byte
    store,       // the same, from the device's memory to another tier
    load,        // the same, from another tier to the device's memory
  };
  Kind kind = Kind::launch;
  std::string name;  // of the first output's value, or of the graph input
  const ir::OpDef* op = nullptr;
  ir::Attributes attributes;
  // Of a collective: by output, the name of the value that its ranks have in common there. A term of it may have
  // another name in each role, or be nothing.
  std::vector<std::string> of;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  Operand workspace;
  bool accumulate = false;   // add to output 0,
  std::int32_t sum = kNone;  // which holds this value before
  bool on_host = false;      // a launch by the host's cores, all of whose operands are in the host's memory
  bool recomputed = false;   // of values that the forward phase made before and that were forgotten

  ir::Phase phase = ir::Phase::forward;
  std::int32_t micro = 0;
  std::int32_t chunk = 0;  // of the stage's part of the model
  std::int32_t stream = 0;
  std::vector<std::int32_t> waits;  // events that must have been recorded
  std::int32_t records = kNone;     // event recorded when done

  bool moves() const { return kind == Kind::store || kind == Kind::load; }
  // Waits for other ranks, whatever they do.
  bool communicates() const {
    return kind == Kind::collective || kind == Kind::push || kind == Kind::pull || between_stages();
  }
  bool between_stages() const { return kind == Kind::send || kind == Kind::receive; }
};

struct NamedOutput {
  std::string name;
  std::int32_t micro = 0;
  Operand operand;
};

// Streams other than the compute stream, 0.
inline constexpr std::int32_t kStoreStream = 1;
inline constexpr std::int32_t kLoadStream = 2;
inline constexpr std::int32_t kCommStream = 3;
inline constexpr std::int32_t kGradientStream = 4;  // shares the compute stream's units
inline constexpr std::int32_t kHostStream = 5;      // launches on the host's cores
// Messages between stages: each direction of each channel has its own.
inline constexpr std::int32_t kSendActivationStream = 6;
inline constexpr std::int32_t kReceiveActivationStream = 7;
inline constexpr std::int32_t kSendGradientStream = 8;
inline constexpr std::int32_t kReceiveGradientStream = 9;
// Collectives over dp, where a rank has others as well.
inline constexpr std::int32_t kReduceStream = 10;

// Whether collectives are on it.
inline bool is_comm_stream(std::int32_t stream) { return stream == kCommStream || stream == kReduceStream; }

// Instructions that an accelerator does as one launch: from `first` on, before `last`.
struct LaunchGroup {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

// Instructions that an accelerator captures once and then replays as one: from `first` on, before `last`. A replay
// starts after the events in `waits`, and when it is done those in `records` are recorded.
struct CaptureRegion {
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::vector<std::int32_t> waits;
  std::vector<std::int32_t> records;
};

// What one rank runs, every byte placed. The first `state_bytes` of the arena hold the persistent state at the offsets
// of a StateLayout shared by all programs of a run; the rest is this program's own. Other tiers alike.
struct Program {
  std::string name;
  device::Kind device = {};
  int threads = 1;
  int micro_batches = 1;
  ir::Mesh mesh;  // of the ranks that run it together
  std::vector<Buffer> buffers;
  std::size_t states = 0;  // the first buffers are those of the module's states, in its order
  // By value, in the order in which lowering makes them: the state whose contents it is, or kNone. The first are those
  // of the states before the program; each state is left with the last of its own. Empty: operands name no values.
  std::vector<ir::StateId> values;
  std::vector<Instruction> instructions;
  std::vector<NamedOutput> outputs;
  std::vector<LaunchGroup> launch_groups;      // in order; empty on the CPU
  std::vector<CaptureRegion> capture_regions;  // in order; empty on the CPU
  std::size_t state_bytes = 0;
  std::size_t arena_bytes = 0;                         // the predicted peak
  std::size_t lower_bound = 0;                         // largest sum of simultaneously live bytes
  std::array<std::size_t, kTiers> tier_state_bytes{};  // of the other tiers: [0] is unused
  std::array<std::size_t, kTiers> tier_bytes{};

  std::size_t state_bytes_in(int tier) const { return tier == 0 ? state_bytes : tier_state_bytes[at(tier)]; }
  std::size_t bytes_in(int tier) const { return tier == 0 ? arena_bytes : tier_bytes[at(tier)]; }
  int streams() const;
  int events() const;
  // Whether it is a copy to or from the disk. Several of a stream are under way at once, and complete in any order.
  bool moves_on_disk(const Instruction& instruction) const;
  bool is_placed() const { return arena_bytes > 0; }  // memory is planned

 private:
  static std::size_t at(int tier) { return static_cast<std::size_t>(tier); }
};

// Where persistent state lives; the same for every program over it.
struct StateLayout {
  std::vector<std::size_t> offsets;  // by StateId, in the state's tier; unused for step-local states
  std::size_t staging = 0;           // offset of the staging, behind the states, on a page of its own
  std::size_t staging_bytes = 0;
  std::size_t bytes = 0;
  std::array<std::size_t, kTiers> tier_bytes{};  // of the other tiers: [0] is unused
};
StateLayout lay_out(const ir::Module& module, std::size_t staging_bytes = 0);

}  // namespace trireme::program
