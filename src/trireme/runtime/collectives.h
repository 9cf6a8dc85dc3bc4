#pragma once
#include <memory>
#include <vector>

#include "trireme/comm/device/group.h"
#include "trireme/program/program.h"
#include "trireme/runtime/halo.h"
#include "trireme/runtime/prepared.h"
#include "trireme/runtime/process_groups.h"

namespace trireme::runtime {

// A program's instructions that other ranks take part in: collectives, messages to ranks beyond the mesh, and messages
// between the stages of a pipeline.
class Collectives {
 public:
  // `ranks` is this rank's place among the others (null: there are none); it must outlive this.
  Collectives(const program::Program& program, ProcessGroups* ranks);

  // Fails where instruction i needs ranks that are not there. `p` must stay where it is.
  void prepare(std::size_t i, const Prepared& p);
  // In the instruction's stream. `first_event` is the first of DeviceGroup::kEvents that collectives may use.
  void run(std::size_t i, device::Streams& streams, std::size_t first_event);

  // While instructions are run one at a time, in the order of the program, what is sent to other stages is copied: this
  // rank goes on before the other has come to receive it.
  void copy_what_is_sent() { copies_sent_ = true; }
  // Waits until all of it has been received.
  void finish_sends();

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
    comm::Communicator* messages = nullptr;  // between stages
    int peer = 0;                            // of a message
    int key = 0;
  };
  void prepare_message(const program::Instruction& instruction, Part& part) const;
  void send_or_receive(const program::Instruction& instruction, const Part& part);

  const program::Program& program_;
  ProcessGroups* ranks_;
  std::vector<Part> parts_;  // by instruction
  struct Sent {
    std::vector<std::byte> bytes;
    comm::Request request;
  };
  bool copies_sent_ = false;
  std::vector<std::unique_ptr<Sent>> sent_;
};

}  // namespace trireme::runtime
