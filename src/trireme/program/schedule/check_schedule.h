#pragma once
#include "trireme/program/schedule/schedule.h"

namespace trireme::program {

// Refuses a schedule that cannot run, naming the stage, its line where `lines` are given, and the action:
// - on every stage each micro-batch of each chunk has exactly one F and one B, and at most one W (none: B is the whole
//   backward), in this order; a stage's chunks forward a micro-batch in their order where there is one stage;
// - synchronous: the update is the last action, once; asynchronous: every update follows the gradients of the same
//   micro-batches on all stages, fill and any number of steady steps can be drained, and nothing is left afterwards;
// - the stages cannot deadlock, although every send waits for its receive.
//
// The last is stricter than the data flow. A stage sends activations and gradients on streams of their own, so
// computing does not wait for a send. But messages of one kind between two stages are received in the order in which
// they were sent, each after the receiver has completed the actions before the one that needs it: where a receiver
// wants another message first, both wait.
void check_schedule(const Schedule& schedule, const ScheduleLines& lines = {});

}  // namespace trireme::program
