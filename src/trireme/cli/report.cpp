#include "trireme/cli/report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "trireme/cli/roles_report.h"
#include "trireme/cli/techniques.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/data/tokenizer/utf8.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"
#include "trireme/planner/predict.h"
#include "trireme/train/evaluate.h"

namespace trireme::cli {
namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

std::string model_text(const models::ModelConfig& c, bool images) {
  if (images) return fmt::format("{} {} layers, width {}, {}×{} images", c.family, c.layers, c.width, c.image, c.image);
  return fmt::format("{} {}×{}, context {}, vocabulary {}", c.family, c.layers, c.width, c.context,
                     format_count(static_cast<std::uint64_t>(c.vocab)));
}

// Live bytes over the instructions, as rows of blocks: a picture `width` wide and `height` high.
std::string curve(const std::vector<std::size_t>& live, std::size_t floor, int width, int height) {
  if (live.empty()) return {};
  const std::size_t top = *std::max_element(live.begin(), live.end());
  std::vector<double> columns(static_cast<std::size_t>(width));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::size_t begin = c * live.size() / columns.size();
    const std::size_t end = std::max(begin + 1, (c + 1) * live.size() / columns.size());
    std::size_t most = 0;
    for (std::size_t i = begin; i < end && i < live.size(); ++i) most = std::max(most, live[i]);
    columns[c] = top > 0 ? static_cast<double>(most) / static_cast<double>(top) : 0;
  }
  constexpr std::array<const char*, 9> parts = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  for (int row = height - 1; row >= 0; --row) {
    out += row == height - 1 ? fmt::format("{:>10} ", format_bytes(top))
           : row == 0        ? fmt::format("{:>10} ", "0")
                             : std::string(11, ' ');
    out += "│";
    for (const double share : columns) {
      const double filled = share * height - row;
      out += parts[static_cast<std::size_t>(std::lround(std::clamp(filled, 0.0, 1.0) * 8))];
    }
    out += "\n";
  }
  out += fmt::format("{:>11}└{}\n", "", [&] {
    std::string line;
    for (int i = 0; i < width; ++i) line += "─";
    return line;
  }());
  out += fmt::format("{:>12}instructions of the step →   (state that stays: {})\n", "", format_bytes(floor));
  return out;
}

// What memory.limit led to; nothing where it had nothing to decide.
std::string choice_text(const std::optional<planner::Choice>& choice) {
  if (!choice) return {};
  const planner::Saving& saving = choice->saving;
  std::string out = fmt::format("{} activation{} of a micro-batch {} offloaded", saving.moved,
                                saving.moved == 1 ? "" : "s", saving.moved == 1 ? "is" : "are");
  std::array<std::int32_t, 3> segments{};
  for (const planner::RematPlan::Group& group : saving.remat.groups)
    segments[static_cast<std::size_t>(group.hold)] += group.segments;
  if (const auto [kept, cheap, whole] = segments; cheap + whole > 0)
    out += fmt::format(", of {} segments {} are recomputed as far as it is cheap and {} from their input",
                       kept + cheap + whole, cheap, whole);
  return fmt::format("limit   {}; predicted to take {:.3f}× the step without either\n", out,
                     choice->trial.seconds / choice->plain);
}

}  // namespace

std::string one_line(const std::string& text, std::size_t width) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "⏎";
    else if (u < 32 || u >= 127)
      out += "·";
    else
      out += c;
    if (--width == 0) break;
  }
  return out;
}

std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::string_view character = std::string_view(text).substr(i, data::utf8_length(text[i]));
    const bool whole = data::valid_utf8(character) == character.size();
    // C2 80 to C2 9F are control characters again.
    const bool control = lead < 0x80 ? (lead < 0x20 || lead == 0x7F) && lead != '\n' && lead != '\t'
                                     : lead == 0xC2 && whole && static_cast<unsigned char>(character[1]) < 0xA0;
    out += whole && !control ? character : "·";
    i += whole && !control ? character.size() : 1;
  }
  return out;
}

// "no GPU", "NVIDIA H200" or "8 × NVIDIA H200".
static std::string gpus_text() {
  const std::vector<device::cuda::Gpu> gpus = device::cuda::gpus();
  if (gpus.empty()) return "no GPU";
  return gpus.size() == 1 ? gpus.front().name : fmt::format("{} × {}", gpus.size(), gpus.front().name);
}

std::string headline(const train::Config& config) {
  const int cores = train::compute_threads({});
  std::string from = (config.builtin ? "built-in " : "") + config.name;
  constexpr std::size_t kShown = 4;
  const std::vector<std::string>& keys = config.over_builtin;
  if (!keys.empty())
    from += fmt::format(" with your {}{}", fmt::join(keys.begin(), keys.begin() + std::min(kShown, keys.size()), ", "),
                        keys.size() > kShown ? ", …" : "");
  return fmt::format("trireme {} · {} core{} ({}) · {} · {}\n", short_version(), cores, cores == 1 ? "" : "s",
                     planner::cpu_features(), gpus_text(), from);
}

std::string categories_text(const program::PeakReport& peak) {
  std::vector<std::string> parts;
  for (int c = 0; c < program::kCategories; ++c)
    if (peak.categories[static_cast<std::size_t>(c)] > 0)
      parts.push_back(fmt::format("{} {:.1f}", program::name_of(static_cast<program::Category>(c)),
                                  mebibytes(peak.categories[static_cast<std::size_t>(c)])));
  return fmt::format("{} MiB", fmt::join(parts, " · "));
}

namespace {

// Of those that take rows of the batch.
const train::Role& fullest_role(const train::Compiled& c) {
  const train::Role* fullest = &c.roles.front();
  for (const train::Role& role : c.roles)
    if (role.takes_rows() && role.arena_bytes > fullest->arena_bytes) fullest = &role;
  return *fullest;
}

std::size_t program_count(const train::Compiled& c) {
  std::size_t count = 0;
  for (const train::Role& role : c.roles)
    if (role.takes_rows()) count += role.programs.size();
  return count;
}

}  // namespace

std::string plan_text(const train::Trainer& t) {
  const train::Compiled& c = t.compiled();
  const train::Role& fullest = fullest_role(c);
  const program::PeakReport peak = program::peak(fullest.largest());
  std::string out;
  out += fmt::format("data    {}\n", t.data().summary);
  out += fmt::format("model   {}, {} parameters\n", model_text(t.config().model, t.model().images),
                     format_count(c.parameters()));
  if (!t.config().other_family.empty()) out += fmt::format("        {}\n", t.config().other_family);
  const int ranks = c.mesh.ranks();
  if (ranks == 1)
    out += "plan    1 rank";
  else
    out += fmt::format("plan    {} → {} ranks ({})", c.mesh.str(), ranks, t.transport());
  if (c.plan.stages() > 1) out += ", " + t.config().parallel.pipeline.text();
  if (c.replicas > 1) out += fmt::format(", ZeRO-{}", t.config().parallel.zero);
  // As train.micro_batch counts: rows of one replica.
  const std::int64_t rows = c.micro_rows / c.replicas;
  out += fmt::format(", {} thread{}{}, {} micro-batch{} of {} row{}, {}, {}", t.threads(), t.threads() == 1 ? "" : "s",
                     ranks == 1 ? "" : " each", c.micro_batches, c.micro_batches == 1 ? "" : "es", rows,
                     rows == 1 ? "" : "s", t.config().train.precision, t.config().train.optimizer);
  if (const std::string others = c.other_ranks(); !others.empty()) out += ", " + others;
  out += techniques(t) + "\n" + choice_text(t.planned().choice);
  out += fmt::format(
      "check   {} programs, {} instructions: every read follows its write, {} shared ranges ordered, no race{}\n",
      program_count(c), format_count(c.checked.instructions), format_count(c.checked.conflicts_ordered),
      c.together.collectives == 0
          ? ""
          : fmt::format(", {} collectives in one order on all ranks", format_count(c.together.collectives)));
  if (c.together.messages > 0) {
    out.pop_back();
    out += fmt::format("; {} messages: every send has its receive, no deadlock\n", format_count(c.together.messages));
  }
  const bool one_role = c.roles.size() == 1 || !c.roles[1].takes_rows();
  out += fmt::format("memory  predicted peak {} B{} ({})\n", format_count(fullest.arena_bytes),
                     ranks == 1 ? ""
                     : one_role ? " on each rank"
                                : fmt::format(" on each rank of {}, the fullest", fullest.name),
                     categories_text(peak));
  out += stages_text(t);
  for (const train::Role& role : c.roles)
    if (!role.takes_rows())
      out += fmt::format("        {} keeps {} parameters in {} B, {}\n", role.name,
                         format_count(role.stored_parameters()), format_count(role.arena_bytes), role.messages_text());
  for (int tier = 1; tier < program::kTiers; ++tier)
    if (const std::size_t bytes = c.tier_bytes(tier); bytes > 0)
      out += fmt::format("{:<8}{} B, where tensors wait until they are needed\n", program::tier_name(tier),
                         format_count(bytes));
  return out;
}

// What the process takes beyond the arenas of its ranks, and with them.
static std::string outside_text(const train::Trainer& t) {
  const bool several = t.ranks_here() < t.compiled().ranks();
  std::string out =
      several ? fmt::format(
                    "\noutside the plan, of each of the {} processes (predicted, at most; of rank {}, whose is "
                    "the largest)\n",
                    t.compiled().ranks(), t.first_rank())
              : "\noutside the plan, of the whole process (predicted, at most)\n";
  for (const train::Outside& one : t.outside())
    out += fmt::format("{:>12}  {:<12} {}{}\n", format_bytes(one.bytes), one.name, one.what,
                       one.when_resumed ? " (--resume alone)"
                       : one.at_first   ? " (in the GPU's memory, before the first step of a first run alone)"
                       : one.on_gpu     ? " (in the GPU's memory)"
                                        : "");
  if (t.compiled().device() == device::Kind::cpu) {
    const std::uint64_t bytes = resident_bound(t);
    out += fmt::format("{} takes at most {} B = {}: {} of arena{}, and these\n", several ? "a process" : "the process",
                       format_count(bytes), format_bytes(bytes),
                       format_bytes(bytes - train::outside_bytes(t.outside(), false)), several ? "" : "s");
  }
  return out;
}

std::uint64_t resident_bound(const train::Trainer& t, bool resumed) {
  const train::Compiled& c = t.compiled();
  std::uint64_t sum = train::outside_bytes(t.outside(), resumed);
  for (int rank = t.first_rank(); rank < t.first_rank() + t.ranks_here(); ++rank)
    sum += c.device() == device::Kind::cpu
               ? c.role_of(rank).arena_bytes
               : c.role_of(rank).tier_bytes[program::kHostTier] + c.role_of(rank).host_staging;
  return sum;
}

std::uint64_t gpu_bound(const train::Trainer& t) {
  std::uint64_t sum = 0;
  for (const train::Outside& one : t.outside()) sum += one.on_gpu && !one.at_first ? one.bytes : 0;
  for (int rank = t.first_rank(); rank < t.first_rank() + t.ranks_here(); ++rank)
    sum += t.compiled().role_of(rank).arena_bytes;
  return sum;
}

std::string memory_text(const train::Trainer& t) {
  const train::Compiled& c = t.compiled();
  const std::optional<planner::Choice>& choice = t.planned().choice;
  const train::Role& fullest = fullest_role(c);
  const program::Program& program = fullest.largest();
  const program::PeakReport peak = program::peak(program);
  std::string out =
      fmt::format("{} parameters; predicted peak {} B = {} in program '{}'{}, at instruction {} of {}\n\n",
                  format_count(c.parameters()), format_count(peak.bytes), format_bytes(peak.bytes), program.name,
                  c.plan.stages() > 1 ? " of " + fullest.name : "", peak.instruction, program.instructions.size());
  out += choice_text(choice);
  out += fmt::format("{:<12}{:>18}{:>12}{:>8}{:>18}\n", "category", "bytes", "", "share", "bytes/parameter");
  const auto row = [&](const char* name, std::size_t bytes) {
    out += fmt::format("{:<12}{:>18}{:>12}{:>7.1f}%{:>18.2f}\n", name, format_count(bytes), format_bytes(bytes),
                       100.0 * static_cast<double>(bytes) / static_cast<double>(peak.bytes),
                       static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(1, c.parameters())));
  };
  for (int k = 0; k < program::kCategories; ++k)
    row(program::name_of(static_cast<program::Category>(k)), peak.categories[static_cast<std::size_t>(k)]);
  row("padding", peak.padding);
  row("total", peak.bytes);
  out += "\n" + curve(program::live_bytes(program), program.state_bytes, 72, 8);
  out += fmt::format("\nlargest sum of live bytes {} B; the arena is {:.3f}× that\n", format_count(program.lower_bound),
                     static_cast<double>(program.arena_bytes) / static_cast<double>(program.lower_bound));
  for (int tier = 1; tier < program::kTiers; ++tier)
    if (const std::size_t bytes = c.tier_bytes(tier); bytes > 0)
      out += fmt::format("on the {}: {} B = {}\n", program::tier_name(tier), format_count(bytes), format_bytes(bytes));
  if (const std::string roles = roles_text(c); !roles.empty()) out += "\n" + roles;
  out += "\nlargest tensors alive at the peak\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(10, peak.largest.size()); ++i) {
    const program::Buffer& b = program.buffers[static_cast<std::size_t>(peak.largest[i])];
    out += fmt::format("{:>12}  {:<12} {}\n", format_bytes(b.bytes), program::name_of(b.category), b.name);
  }
  return out + outside_text(t);
}

std::string savings_text(const std::vector<train::WhatIf>& savings) {
  std::string out = "what savings would give (predicted at nominal speeds; time against this configuration)\n";
  bool other_numbers = false;
  for (const train::WhatIf& s : savings) {
    std::string settings;
    for (const std::string& setting : s.settings) settings += " --" + setting;
    if (settings.empty()) settings = " as configured";
    if (s.refused.empty())
      out +=
          fmt::format("{:>12}{:>9.2f}× {}{}\n", format_bytes(s.peak), s.time, settings, s.changes_numbers ? " *" : "");
    else
      out += fmt::format("{:>12}{:>10} {}: {}\n", "–", "–", settings, s.refused);
    other_numbers = other_numbers || (s.changes_numbers && s.refused.empty());
  }
  if (other_numbers) out += "* rounds differently: losses are close, not the same\n";
  return out;
}

namespace {

nlohmann::ordered_json role_json(const train::Role& role) {
  const program::PeakReport peak = program::peak(role.largest());
  nlohmann::ordered_json rank = {{"role", role.kind}, {"name", role.name}, {"predicted_peak_bytes", peak.bytes}};
  for (int k = 0; k < program::kCategories; ++k)
    rank[program::name_of(static_cast<program::Category>(k))] = peak.categories[static_cast<std::size_t>(k)];
  rank["padding"] = peak.padding;
  rank["tiers"] = {{"host", role.tier_bytes[1]}, {"disk", role.tier_bytes[2]}};
  return rank;
}

}  // namespace

std::string memory_json(const train::Trainer& t, const std::vector<train::WhatIf>& savings) {
  const train::Compiled& c = t.compiled();
  const std::optional<planner::Choice>& choice = t.planned().choice;
  const program::Program& program = fullest_role(c).largest();
  const program::PeakReport peak = program::peak(program);
  nlohmann::ordered_json o;
  nlohmann::ordered_json& ranks = o["ranks"] = nlohmann::ordered_json::array();
  std::vector<nlohmann::ordered_json> by_role;
  for (const train::Role& role : c.roles) by_role.push_back(role_json(role));
  for (int r = 0; r < c.ranks(); ++r) {
    nlohmann::ordered_json rank = {{"rank", r}};
    rank.update(by_role[c.seat(r).role]);
    ranks.push_back(std::move(rank));
  }
  nlohmann::ordered_json& outside = o["outside"] = nlohmann::ordered_json::array();
  for (const train::Outside& one : t.outside())
    outside.push_back({{"name", one.name},
                       {"bytes", one.bytes},
                       {"what", one.what},
                       {"when_resumed", one.when_resumed},
                       {"on_gpu", one.on_gpu},
                       {"at_first", one.at_first}});
  // Of one process: both what is outside and the bound.
  o["processes"] = t.ranks_here() < c.ranks() ? c.ranks() : 1;
  o["resident_bound_bytes"] = resident_bound(t);
  o["shortfalls"] = t.shortfalls();
  o["parameters"] = c.parameters();
  o["largest_live_bytes"] = program.lower_bound;
  o["micro_batches"] = c.micro_batches;
  // On a machine of round numbers: for ratios.
  o["nominal_step_s"] = planner::nominal_seconds(c.roles.front().program("step"));
  if (choice)
    o["limit"] = {{"remat", choice->saving.remat.str()},
                  {"moved", choice->saving.moved},
                  {"relative_time", choice->trial.seconds / choice->plain}};
  nlohmann::ordered_json& tensors = o["largest_tensors"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min<std::size_t>(10, peak.largest.size()); ++i) {
    const program::Buffer& b = program.buffers[static_cast<std::size_t>(peak.largest[i])];
    tensors.push_back({{"name", b.name}, {"category", program::name_of(b.category)}, {"bytes", b.bytes}});
  }
  for (const train::WhatIf& s : savings) {
    nlohmann::ordered_json one = {{"settings", s.settings}};
    if (s.refused.empty())
      one.update({{"predicted_peak_bytes", s.peak}, {"relative_time", s.time}, {"same_numbers", !s.changes_numbers}});
    else
      one["refused"] = s.refused;
    o["what_if"].push_back(one);
  }
  return o.dump(1) + "\n";
}

std::string resident_text(std::uint64_t measured, std::uint64_t bound) {
  const bool within = measured <= bound;
  return fmt::format("{} of the whole process, {} {} predicted {}", format_bytes(measured),
                     within ? "at most" : "more than the", format_bytes(bound), within ? "✓" : "✗");
}

// What was planned, and what the system says of the process, or the driver of the GPU.
static std::string used_text(const train::Trainer& t, bool resumed) {
  const train::Compiled& c = t.compiled();
  std::string out = fmt::format("memory  planned {} B{}; measured: ", format_count(c.arena_bytes()),
                                c.ranks() == 1 ? "" : " on the fullest rank");
  if (c.device() != device::Kind::cpu) {
    out += planner::whole_use(c.device());
    if (device::cuda::gpus().size() == 1)
      out += fmt::format(", of which this {} at most {} predicted", t.ranks_here() == c.ranks() ? "run" : "process",
                         format_bytes(gpu_bound(t)));
  } else {
    out += resident_text(planner::resident_peak(), resident_bound(t, resumed));
  }
  out += "\n";
  if (const std::size_t disk = c.tier_bytes(program::kDiskTier); disk > 0)
    out += fmt::format("disk    planned {} B\n", format_count(disk));
  return out;
}

// How much of what may be pruned is zero, as the ranks of this process have it.
static std::string pruned_text(train::Trainer& t) {
  if (!t.compiled().plan.prune) return "";
  double zeros = 0, all = 0;
  std::set<std::string> names;
  for (const auto& rank : t.session().ranks())
    for (const ir::State& state : rank->role().module.states) {
      if (!state.name.ends_with("/mask")) continue;
      std::vector<float> mask(static_cast<std::size_t>(state.type.elements()));
      rank->read_state(state.name, 0, std::as_writable_bytes(std::span(mask)));
      zeros += static_cast<double>(std::count(mask.begin(), mask.end(), 0.0F));
      all += static_cast<double>(mask.size());
      names.insert(state.name);
    }
  if (all == 0) return "";
  return fmt::format("pruned  {:.1f}% of the elements of {} tensors are zero; prune.sparsity = {}\n", 100 * zeros / all,
                     names.size(), t.config().prune.sparsity);
}

std::string summary_text(train::Trainer& t, const train::Outcome& o) {
  std::string out = "\n";
  if (!o.losses.empty()) {
    out += fmt::format("loss    {:.3f} {} {:.3f}", o.losses.front(), sparkline(o.losses, 48), o.losses.back());
    if (o.evaluation) {
      out += fmt::format(" · held out {:.3f}", o.evaluation->loss);
      if (o.evaluation->accuracy) out += fmt::format(" · {:.1f}% of the images right", 100 * *o.evaluation->accuracy);
      out += fmt::format(" over {}", train::samples_text(o.evaluation->samples, o.evaluation->available));
    }
    if (t.data().unigram_entropy > 0)
      out += fmt::format(" ({} frequencies alone: {:.2f})", t.config().data.tokenizer == "bytes" ? "byte" : "token",
                         t.data().unigram_entropy);
    out += "\n";
  }
  if (o.loss_scale)
    out += fmt::format("fp16    {} of {} updates skipped (overflow); the loss is scaled by {:.0f}\n", o.skipped,
                       o.losses.size(), *o.loss_scale);
  out += pruned_text(t);
  out += used_text(t, std::ssize(o.losses) < o.steps);
  if (o.seconds > 0) {
    const double backward = o.phase_seconds[1] + o.phase_seconds[2];
    const bool alone = t.compiled().mesh.ranks() == 1;
    const bool piped = t.compiled().plan.stages() > 1;
    const double other = o.seconds - o.phase_seconds[0] - backward - o.phase_seconds[3] - o.data_seconds -
                         (alone ? 0 : o.exposed_comm_seconds) - (piped ? o.idle_seconds : 0);
    const auto percent = [&](double s) { return 100.0 * s / o.seconds; };
    out += fmt::format(
        "time    {}: forward {:.0f}% · backward {:.0f}% · update {:.0f}% · {}{}waiting for data {:.0f}% · other "
        "{:.0f}%",
        format_duration(o.seconds), percent(o.phase_seconds[0]), percent(backward), percent(o.phase_seconds[3]),
        piped ? fmt::format("pipeline idle {:.0f}% · ", percent(o.idle_seconds)) : "",
        alone ? "" : fmt::format("exposed communication {:.0f}% · ", percent(o.exposed_comm_seconds)),
        percent(o.data_seconds), percent(std::max(0.0, other)));
    out +=
        fmt::format(" · {:.0f} GFLOP/s", t.flops_per_step() * static_cast<double>(o.losses.size()) / o.seconds / 1e9);
    constexpr double kSeen = 0.05;  // of the training
    if (o.checkpoint_seconds > kSeen * o.seconds)
      out += fmt::format("; {} more waiting for checkpoints", format_duration(o.checkpoint_seconds));
    out += "\n";
  }
  return out;
}

}  // namespace trireme::cli
