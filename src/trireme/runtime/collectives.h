#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/device/group.h"
#include "trireme/program/program.h"
#include "trireme/runtime/halo.h"
#include "trireme/runtime/prepared.h"
#include "trireme/runtime/process_groups.h"

namespace trireme::runtime {

// By axes of a group: the first of the events that its collectives use, numbered from the program's own on. Each group
// has its own: a rank may be in the next collective of another group, on another stream, before all ranks wait for the
// events of the last one of this.
std::map<std::string, std::size_t> events_of_groups(const program::Program& program);

// A program's instructions that other ranks take part in: collectives, messages to ranks beyond the mesh, and messages
// between the stages of a pipeline.
class Collectives {
 public:
  // `ranks` is this rank's place among the others (null: there are none). All must outlive this. Fails where an
  // instruction needs ranks that are not there.
  Collectives(const program::Program& program, const PreparedProgram& prepared, ProcessGroups* ranks);

  // In the instruction's stream, by events from number program.events() on.
  void run(std::size_t i, device::Streams& streams);
  // How many of these there are.
  std::size_t events() const {
    return groups_.size() * comm::DeviceGroup::kEvents + static_cast<std::size_t>(messages_);
  }

  // On a device a send has not been taken when its stream has done it. Its event is recorded when a stream is about to
  // wait for it: that waits for the thread of the rank that receives.
  bool is_on_its_way(std::size_t i) const { return parts_[i].on_its_way; }
  void settle(std::int32_t event, device::Streams& streams);
  // At the end of a run, of all that is on its way.
  void settle_all(device::Streams& streams);
  // Forgets what is on its way: before a run, in which the one before it may have failed.
  void forget();

 private:
  // What one of them was prepared for.
  struct Part {
    const Prepared* place = nullptr;
    comm::DeviceGroup* group = nullptr;
    std::vector<device::Streams::Copy> copies;  // before an all_reduce that is not in place
    std::vector<comm::Segment> segments;        // of an all_reduce
    std::vector<comm::Cut> cuts;                // of a reduce_scatter or all_gather
    std::vector<comm::DeviceGroup::Exchange> exchanges;
    std::unique_ptr<HaloMoves> halo;
    comm::Communicator* messages = nullptr;        // between stages
    std::unique_ptr<comm::DeviceMessage> message;  // between stages, in a device's memory
    std::size_t event = 0;                         // the first of its own, or of its group's
    bool on_its_way = false;
    int peer = 0;  // of a message
    int key = 0;
  };
  void prepare(std::size_t i, const Prepared& p);
  void prepare_message(const program::Instruction& instruction, Part& part);
  void settle_message(std::size_t i, device::Streams& streams);
  void send_or_receive(const program::Instruction& instruction, const Part& part);

  const program::Program& program_;
  ProcessGroups* ranks_;
  std::map<std::string, std::size_t> groups_;            // events of each
  std::vector<Part> parts_;                              // by instruction
  std::int32_t messages_ = 0;                            // between stages, in a device's memory
  std::unordered_map<std::int32_t, std::size_t> sends_;  // of these, by event: the instruction
};

}  // namespace trireme::runtime
