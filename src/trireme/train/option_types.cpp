#include "trireme/train/option_types.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::train {

Bytes::Bytes(const char* text) {
  const std::string_view written = text;
  const auto bytes = written.empty() ? std::optional<std::uint64_t>(0) : parse_bytes(written);
  TRI_CHECK(bytes.has_value(), "\"{}\" is no size", written);
  count = *bytes;
}

AutoBytes::AutoBytes(const char* text) {
  if (std::string_view(text) != "auto") size = Bytes(text);
}

Seconds::Seconds(const char* text) {
  const std::string_view written = text;
  const auto seconds = written.empty() ? std::optional<double>(0) : parse_duration(written);
  TRI_CHECK(seconds.has_value(), "\"{}\" is no time", written);
  count = *seconds;
}

Interval::Interval(const char* text) : seconds(Seconds(text).count) {}

OffloadSet::OffloadSet(std::string_view text) {
  const auto kinds = parse(text);
  TRI_CHECK(kinds.has_value(), "\"{}\" is nothing that can be offloaded", text);
  *this = *kinds;
}

std::optional<OffloadSet> OffloadSet::parse(std::string_view text) {
  OffloadSet kinds;
  if (text == "none") return kinds;
  if (text == "all") text = "activations,weights,optimizer";
  for (const std::string& part : split(text, ',')) {
    const std::string_view kind = trim(part);
    if (kind == "activations")
      kinds.activations = true;
    else if (kind == "weights")
      kinds.weights = true;
    else if (kind == "optimizer")
      kinds.optimizer = true;
    else
      return std::nullopt;
  }
  return kinds;
}

std::string OffloadSet::text() const {
  if (none()) return "none";
  if (activations && weights && optimizer) return "all";
  std::string text;
  const auto add = [&](bool offloaded, const char* kind) {
    if (offloaded) text += (text.empty() ? "" : ",") + std::string(kind);
  };
  add(activations, "activations");
  add(weights, "weights");
  add(optimizer, "optimizer");
  return text;
}

}  // namespace trireme::train
