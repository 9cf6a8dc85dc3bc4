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
// What the gradients read of the forward phase becomes a state, of which there are `ahead` + 1: the micro-batches that
// a stage has in flight at once. A weight that the gradients read, and the update writes, has as many versions beyond
// the newest as micro-batches are ahead of their backwards; with `delayed`, every weight that a micro-batch reads has
// one. The graphs name those with the number 0: what runs them names the others in their place (SlotStates).
//
// What was offloaded waits where it is: the states of what the forward phase stores in another tier, and the versions
// of weights that are there, are of that tier too.
//
// Comes last of what changes the graph of a micro-batch, which stays as it is.
class InFlight : public Pass {
 public:
  struct Options {
    int ahead = 0;         // micro-batches in flight between two steps
    bool delayed = false;  // one update per step, of which the next step reads nothing yet (PipeDream-2BW)
  };
  explicit InFlight(Options options) : options_(options) {}
  std::string name() const override { return "in-flight"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// States that are used in the place of others.
using SlotStates = std::vector<std::pair<ir::StateId, ir::StateId>>;

// What was saved for the backward, in that slot.
SlotStates in_flight_slot(const ir::Module& module, int slot);
// The weights' versions of that slot.
SlotStates in_version_slot(const ir::Module& module, int slot);
// Versions in the place of the newest weights.
SlotStates versions_for_weights(const ir::Module& module);

}  // namespace trireme::passes
