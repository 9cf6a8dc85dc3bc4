#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "trireme/device/stream.h"
#include "trireme/device/tier_file.h"
#include "trireme/program/program.h"
#include "trireme/runtime/failure.h"
#include "trireme/runtime/prepared.h"

namespace trireme::runtime {

// Whether it is a copy to or from the disk.
bool is_disk_copy(const program::Program& program, const program::Instruction& instruction);

// A program's copies to and from the disk, in their streams. From a CPU's memory several are under way at once and end
// in any order; from an accelerator's each passes through the host's memory.
class DiskCopies {
 public:
  // What they work on, which must outlive them.
  struct Site {
    const program::Program& program;
    const PreparedProgram& prepared;
    device::TierFile& disk;
    Failure& failure;
    std::function<void(std::size_t i)> ended;  // in its stream, before the event is recorded, if `start` said no
  };
  static std::unique_ptr<DiskCopies> on(const Site& site);

  DiskCopies() = default;
  DiskCopies(const DiskCopies&) = delete;
  DiskCopies& operator=(const DiskCopies&) = delete;
  virtual ~DiskCopies() = default;

  // In the stream of instruction i, which may be another than a disk copy: before the stream waits for its events.
  // Then of a disk copy: to start it, and when it was started or skipped. `start` says whether its event is to be
  // recorded now; else that is done when the copy ends.
  virtual void before_waiting(std::size_t i, device::Streams& streams) = 0;
  virtual bool start(std::size_t i, device::Streams& streams) = 0;
  virtual void after(std::size_t i, device::Streams& streams) = 0;
};

}  // namespace trireme::runtime
