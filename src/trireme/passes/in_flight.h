#pragma once
#include <string>
#include <utility>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// The graphs that take the place of "micro" in an asynchronous pipeline.
inline constexpr const char* kForward = "forward";
inline constexpr const char* kBackward = "backward";
inline constexpr const char* kStash = "stash";  // keeps the weights as they are, before an update

// Splits the joint graph of a micro-batch, so that its backward can run in a later program than its forward, after
// updates.
//
//   graph micro {                         graph forward {                      graph backward {
//     %h = relu(%a)                         %h = relu(%a)                        %dh = matmul(%dy, @w/version.0)
//     …                            →        write set @flight/h.0 = %h           %da = relu_grad(@flight/h.0, %dh)
//     %dh = matmul(%dy, @w)               }                                    }
//     %da = relu_grad(%h, %dh)            graph stash {
//   }                                       write set @w/version.0 = @w
//                                         }
//
// A value that the forward phase saves for the gradients becomes a state. There are `slots` copies of this state, at
// least one for each micro-batch that the stage has in flight. A weight that the gradients read and the update writes
// has `versions` older versions next to the newest; with `delayed`, every weight that a micro-batch reads has one older
// version. The graphs name copy 0, and a program that uses another copy replaces the name (SlotStates).
//
// Offloaded values stay offloaded: the copies of a value in another tier, and the versions of a weight there, belong to
// that tier.
//
// This pass runs after all others that change "micro", and leaves "micro" as it is.
class InFlight : public Pass {
 public:
  struct Options {
    int ahead = 0;         // micro-batches in flight between two steps
    bool delayed = false;  // one update per step, of which the next step reads nothing yet (PipeDream-2BW)
    int slots = 1;         // `ahead` + 1 or more
    int versions = 0;      // `ahead` or more; with `delayed` one
  };
  explicit InFlight(Options options) : options_(options) {}
  std::string name() const override { return "in-flight"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// States that are used in the place of others.
using SlotStates = std::vector<std::pair<ir::StateId, ir::StateId>>;

// The replacements by which a program reads and writes the saved values of that slot.
SlotStates in_flight_slot(const ir::Module& module, int slot);
// The replacements by which it uses the weight versions of that slot.
SlotStates in_version_slot(const ir::Module& module, int slot);
// The replacements by which it reads an older version where a graph names the newest weight.
SlotStates versions_for_weights(const ir::Module& module);

}  // namespace trireme::passes
