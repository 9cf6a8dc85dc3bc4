#include "trireme/cli/progress.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/evaluate.h"

namespace trireme::cli {
using Clock = std::chrono::steady_clock;

Progress::Progress(std::int64_t first_step, std::int64_t steps, std::string unit)
    : first_(first_step), steps_(steps), unit_(std::move(unit)), last_(Clock::now()) {}

Progress::~Progress() { finish(); }

void Progress::show(const std::string& line, bool force) {
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (!force && shown_ && since < line_.pause()) return;
  last_ = now;
  shown_ = true;
  line_.show(line);
}

void Progress::step(const train::Metrics& m) {
  const double seconds = m.step_ms / 1e3;
  mean_step_ = mean_step_ == 0 ? seconds : 0.9 * mean_step_ + 0.1 * seconds;
  const double left = mean_step_ * static_cast<double>(steps_ - m.step);
  std::vector<Fact> facts = {{fmt::format("loss {:.3f}", m.loss), 9},
                             {fmt::format("{} {}/s", format_rate(m.tokens_per_s), unit_), 3},
                             {format_bytes(m.peak_bytes), 1},
                             {fmt::format("{} left", format_duration(std::max(0.0, left))), 4}};
  if (m.loss_scale)
    facts.push_back({fmt::format("scale {:.0f}{}", *m.loss_scale, m.skipped ? ", overflow: skipped" : ""), 2});
  if (m.eval_loss)
    facts.push_back({fmt::format("held out {:.3f}{} ({})", *m.eval_loss,
                                 m.eval_accuracy ? fmt::format(", accuracy {:.1f}%", 100 * *m.eval_accuracy) : "",
                                 train::samples_text(m.eval_samples, m.held_out_samples)),
                     5});
  const std::string line = progress_line(
      fmt::format("step {}/{}", m.step, steps_),
      static_cast<double>(m.step - first_) / static_cast<double>(std::max<std::int64_t>(1, steps_ - first_)),
      std::move(facts), line_.columns());
  show(line, m.step == steps_ || m.eval_loss.has_value() || m.skipped);
}

void Progress::evaluation(std::int64_t done, std::int64_t total) {
  if (line_.terminal())
    show(progress_line("evaluating on held-out data", static_cast<double>(done) / static_cast<double>(total),
                       {{fmt::format("{}/{}", done, total), 1}}, line_.columns()),
         done == total);
}

void Progress::finish() { line_.keep(); }

}  // namespace trireme::cli
