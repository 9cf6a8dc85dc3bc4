#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/schedule/schedule.h"
#include "trireme/program/schedule/timing.h"

namespace trireme::program {

// The schedules, as `parallel.pipeline` names them.
struct PipelineName {
  enum class Kind {
    sequential,
    gpipe,
    one_f_one_b,
    interleaved,
    zero_bubble,
    zero_bubble_auto,
    pipedream,
    pipedream_2bw,
    file
  };
  Kind kind = Kind::one_f_one_b;
  int chunks = 1;         // interleaved:V
  std::string path = {};  // file:PATH
  friend bool operator==(const PipelineName&, const PipelineName&) = default;
};

// "1f1b", "interleaved:2", "file:my.txt". Refuses what is none, with the nearest that is.
PipelineName parse_pipeline(std::string_view text);

struct ScheduleRequest {
  PipelineName pipeline = {};
  int stages = 1;
  int micro_batches = 1;
  std::vector<int> max_held = {};  // zero-bubble:auto; by stage, or one for all; empty: no limit
  ScheduleCosts costs = {};        // zero-bubble:auto
  // file:PATH: what is written there (read_schedule). Must have the stages and micro-batches of the request.
  std::optional<Schedule> given = {};
};

// The schedule, valid (check_schedule). Reads nothing but its argument. Refuses numbers that the pipeline cannot run
// with.
Schedule make_schedule(const ScheduleRequest& request);

// A schedule's text in a file, valid. Refuses, by file and line, what is none.
Schedule read_schedule(const std::string& path);

// Each micro-batch goes to its end before the next one starts: model parallelism. F0 B0 F1 B1 …
Schedule sequential_schedule(int stages, int micro_batches);
// All forwards, then all backwards. F0 F1 … B0 B1 …
Schedule gpipe_schedule(int stages, int micro_batches);
// A backward as soon as there is one: stage i starts p − 1 − i forwards ahead, then alternates.
Schedule one_f_one_b_schedule(int stages, int micro_batches);
// The same over V chunks per stage, in Megatron's order: p micro-batches through one chunk, then through the next.
// Where m is no multiple of p it is the schedule of the next multiple, less the micro-batches that do not exist.
Schedule interleaved_schedule(int stages, int micro_batches, int chunks);

}  // namespace trireme::program
