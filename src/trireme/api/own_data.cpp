#include "trireme/api/own_data.h"

#include <algorithm>

#include "trireme/api/own_inputs.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

// Samples [first, last) of the program's.
class OwnDataset final : public data::Dataset {
 public:
  OwnDataset(const Data& data, std::int64_t first, std::int64_t last)
      : own_(data.own), data_(data), first_(first), count_(last - first) {}

  std::int64_t samples() const override { return count_; }
  std::int64_t tokens_per_sample() const override { return own_->tokens ? data_.context : 1; }
  // Both halves share it; the first counts it.
  data::DataMemory memory() const override { return {.held = first_ == 0 ? own_->held : 0}; }

  void resize(data::Batch& batch, std::int64_t rows) const override {
    if (own_->tokens) {
      batch.tokens.resize(static_cast<std::size_t>(rows * data_.context));
      batch.targets.resize(batch.tokens.size());
    } else {
      batch.images.resize(static_cast<std::size_t>(rows) * pixels());
      batch.labels.resize(static_cast<std::size_t>(rows));
    }
  }

  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    const auto at = static_cast<std::size_t>(row);
    if (own_->tokens) {
      const auto length = static_cast<std::size_t>(data_.context);
      const std::span tokens = std::span(batch.tokens).subspan(at * length, length);
      const std::span targets = std::span(batch.targets).subspan(at * length, length);
      own_->tokens(first_ + sample, tokens, targets);
      check(sample, tokens, 0, data_.vocab, "token");
      check(sample, targets, -1, data_.vocab, "target");
    } else {
      const std::span<float> image = std::span(batch.images).subspan(at * pixels(), pixels());
      std::int32_t& label = batch.labels[at];
      label = own_->image(first_ + sample, image);
      check(sample, {&label, 1}, 0, data_.classes, "label");
    }
  }

 private:
  std::size_t pixels() const { return static_cast<std::size_t>(data_.image * data_.image * data_.channels); }

  void check(std::int64_t sample, std::span<const std::int32_t> values, std::int64_t low, std::int64_t high,
             const char* what) const {
    for (const std::int32_t value : values)
      if (value < low || value >= high)
        fail("sample {}: the {} {} is not from {} to below {}", first_ + sample, what, value, low, high);
  }

  std::shared_ptr<const OwnSamples> own_;
  Data data_;
  std::int64_t first_;
  std::int64_t count_;
};

}  // namespace

data::Data open_own(const Data& data) {
  const std::int64_t samples = data.own->samples;
  const std::int64_t held_out =
      data.holdout <= 0
          ? 0
          : std::max<std::int64_t>(1, static_cast<std::int64_t>(data.holdout * static_cast<double>(samples)));
  if (!data.own->tokens && !data.own->image && !data.own->write)
    refuse("samples of one's own need a function that reads them");
  if (data.own->tokens && data.vocab <= 0) refuse("vocab must be given with tokens of one's own");
  if (samples - held_out < 1) {
    const std::int64_t needed = held_out > 0 ? 2 : 1;
    const auto tokens = static_cast<std::int64_t>(data.own->held / sizeof(std::int32_t));
    const bool in_memory = data.own->tokens && data.own->held > 0;
    const std::string enough = fmt::format("give at least {}", in_memory ? needed * data.context + 1 : needed);
    refuse("data: {} too few to train on{}; {}{}",
           in_memory ? fmt::format("{} token{} in rows of context = {}{}", tokens, tokens == 1 ? "" : "s", data.context,
                                   tokens == 1 ? " is" : " are")
                     : fmt::format("{} sample{}", samples, samples == 1 ? " is" : "s are"),
           held_out > 0 ? " and to hold some out" : "", enough,
           held_out > 0 && samples > 0 ? ", or set holdout = 0" : "");
  }
  data::Data out;
  out.vocab = data.own->tokens ? data.vocab : 0;
  out.shape = {.images = static_cast<bool>(data.own->image),
               .context = data.context,
               .vocab = out.vocab,
               .image = data.image,
               .channels = data.channels,
               .classes = data.classes};
  out.summary =
      fmt::format("{} samples of the program's own, {} held out", format_count(static_cast<std::uint64_t>(samples)),
                  format_count(static_cast<std::uint64_t>(held_out)));
  const auto open = [&](std::int64_t first, std::int64_t last) -> std::shared_ptr<const data::Dataset> {
    if (data.own->write) return open_inputs(data, first, last);
    return std::make_shared<OwnDataset>(data, first, last);
  };
  out.train = open(0, samples - held_out);
  if (held_out > 0) out.eval = open(samples - held_out, samples);
  return out;
}

}  // namespace trireme
