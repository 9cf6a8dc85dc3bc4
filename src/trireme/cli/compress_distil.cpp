#include "trireme/cli/compress_distil.h"

#include <filesystem>

#include "trireme/cli/preparation.h"
#include "trireme/cli/progress.h"
#include "trireme/cli/signals.h"
#include "trireme/core/error.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

int train_student(const Context& context, const std::string& from, const std::string& out, bool overwrite) {
  const train::Registry& registry = *context.registry;
  const train::Config teacher = train::load_config(from, {}, registry.models);
  train::Config student = train::load_config(from, context.overrides, registry.models);
  const models::ModelConfig &t = teacher.model, &s = student.model;
  if (t.layers == s.layers && t.width == s.width && t.heads == s.heads && t.ffn == s.ffn)
    refuse("--distil: the student has the shape of its teacher; give it another, such as --model.layers={}",
           std::max<std::int64_t>(1, t.layers / 2));
  student.distil.teacher = std::filesystem::absolute(from).lexically_normal().string();
  student.output.dir = out;
  student.init.from.clear();
  student.run.clear();
  train::check(student, registry.models);

  const bool resumed = !overwrite && train::holds_run(out);
  train::TrainerOptions options;
  options.mode = overwrite ? train::RunMode::overwrite : resumed ? train::RunMode::resume : train::RunMode::fresh;
  options.command = context.command_line;
  options.log = log_to_stderr;
  Signals signals;
  options.request = [&](const train::Metrics&) { return signals.take(); };
  std::unique_ptr<Progress> progress;
  options.on_step = [&](const train::Metrics& m) { progress->step(m); };
  options.on_evaluation = [&](std::int64_t done, std::int64_t total) { progress->evaluation(done, total); };
  train::Trainer trainer(student, registry, options);
  trainer.start();
  progress =
      std::make_unique<Progress>(trainer.first_step(), student.train.steps, trainer.model().images ? "images" : "tok");
  Signals::between_steps("the step is finished and a checkpoint written",
                         "what was trained since the last checkpoint is lost");
  const train::Outcome outcome = trainer.run();
  progress->finish();
  if (!outcome.stopped) return 0;
  fmt::print("stopped {} at step {} of {}: the same command goes on from there\n", out, outcome.steps,
             student.train.steps);
  return signals.exit_code();
}

}  // namespace trireme::cli
