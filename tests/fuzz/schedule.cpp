#include "trireme/program/schedule/schedule.h"

#include "fuzz/targets.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/timing.h"

namespace trireme::fuzz {

void schedule(Input input) {
  program::ScheduleLines lines;
  const program::Schedule read = program::parse_schedule(text_of(input), &lines);
  fail_if(program::parse_schedule(program::to_text(read)) != read,
          "a schedule does not survive being written and read");
  program::check_schedule(read, lines);
  // What can run has a time.
  program::time_schedule(program::unrolled(read, 2), {});
}

}  // namespace trireme::fuzz
