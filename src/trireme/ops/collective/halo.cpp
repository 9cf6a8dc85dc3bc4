#include "trireme/ops/collective/halo.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

ir::OpDef halo_def(std::string_view name) {
  ir::OpDef def;
  def.name = std::string(name);
  def.operands = {{"x"}};
  def.attributes = {{"axis", std::string()},
                    {"parts", std::int64_t{1}},
                    {"dim", std::int64_t{0}},
                    {"place", std::int64_t{0}},
                    {"have", std::vector<std::int64_t>{}},
                    {"need", std::vector<std::int64_t>{}}};
  const bool exchanges = name == kHaloExchange;
  def.infer = [exchanges](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const Halo halo(attributes);
    TensorType type = inputs[0];
    if (halo.dim < 0 || halo.dim >= type.shape.rank()) fail("{} has no dimension {}", type.str(), halo.dim);
    const std::int64_t from = (exchanges ? halo.own() : halo.needed()).size();
    if (type.shape[halo.dim] != from)
      fail("dimension {} of 'x' must have {} elements, got {}", halo.dim, from, type.str());
    type.shape[halo.dim] = (exchanges ? halo.needed() : halo.own()).size();
    return {type};
  };
  def.no_gradient = "graphs are partitioned after their gradients were made";
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) { return one_pass(inputs, outputs, 0); };
  def.with_precision(ir::Precision::follow);
  def.traits.collective = true;
  return checked(std::move(def));
}

}  // namespace

Halo::Halo(const ir::Attributes& attributes)
    : dim(static_cast<int>(attributes.integer("dim"))), place(static_cast<int>(attributes.integer("place"))) {
  const std::int64_t parts = attributes.integer("parts");
  const std::vector<std::int64_t>& bounds = attributes.integers("have");
  const std::vector<std::int64_t>& needs = attributes.integers("need");
  if (parts < 1 || std::ssize(bounds) != parts + 1 || std::ssize(needs) != 2 * parts || place < 0 || place >= parts)
    fail("'have' and 'need' must name {} and {} numbers for {} ranks, got {} and {}, at place {}", parts + 1, 2 * parts,
         parts, bounds.size(), needs.size(), place);
  for (std::size_t r = 0; r + 1 < bounds.size(); ++r) {
    have.push_back({bounds[r], bounds[r + 1]});
    need.push_back({needs[2 * r], needs[2 * r + 1]});
    if (have.back().empty() || need.back().empty() || need.back().first < bounds.front() ||
        need.back().last > bounds.back())
      fail("rank {} has [{}, {}) and needs [{}, {}), of [{}, {})", r, bounds[r], bounds[r + 1], needs[2 * r],
           needs[2 * r + 1], bounds.front(), bounds.back());
  }
}

std::int64_t Halo::rows_given() const {
  std::int64_t rows = 0;
  for (int r = 0; r < ranks(); ++r) rows += r == place ? 0 : between(place, r).size();
  return rows;
}

std::int64_t Halo::rows_taken() const {
  std::int64_t rows = 0;
  for (int r = 0; r < ranks(); ++r) rows += r == place ? 0 : between(r, place).size();
  return rows;
}

bool Halo::local() const {
  for (std::size_t r = 0; r < have.size(); ++r)
    if (ir::overlap(have[r], need[r]) != need[r]) return false;
  return true;
}

ir::Attributes Halo::attributes(const std::string& axis) const {
  std::vector<std::int64_t> bounds;
  std::vector<std::int64_t> needs;
  for (std::size_t r = 0; r < have.size(); ++r) {
    bounds.push_back(have[r].first);
    needs.push_back(need[r].first);
    needs.push_back(need[r].last);
  }
  bounds.push_back(have.back().last);
  return {{"axis", axis},
          {"parts", static_cast<std::int64_t>(have.size())},
          {"dim", std::int64_t{dim}},
          {"place", std::int64_t{place}},
          {"have", bounds},
          {"need", needs}};
}

namespace {

constexpr std::size_t kMessageAlignment = 64;
std::size_t aligned_bytes(const ir::Range& rows, std::size_t row_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(rows.size()) * row_bytes;
  return (bytes + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
}

}  // namespace

std::vector<HaloMessages> halo_messages(const Halo& halo, bool reduces, std::size_t row_bytes) {
  std::vector<HaloMessages> all;
  std::size_t at = 0;
  for (int peer = 0; peer < halo.ranks(); ++peer) {
    if (peer == halo.place) continue;
    HaloMessages m{peer, halo.between(halo.place, peer), halo.between(peer, halo.place)};
    if (reduces) std::swap(m.out, m.in);
    if (m.out.empty() && m.in.empty()) continue;
    m.out_at = at;
    m.in_at = at + aligned_bytes(m.out, row_bytes);
    at = m.in_at + aligned_bytes(m.in, row_bytes);
    all.push_back(m);
  }
  return all;
}

std::size_t halo_scratch(const std::vector<HaloMessages>& messages, std::size_t row_bytes) {
  return messages.empty() ? 0 : messages.back().in_at + aligned_bytes(messages.back().in, row_bytes);
}

std::size_t halo_row_bytes(const TensorType& x, int dim) { return x.bytes() / static_cast<std::size_t>(x.shape[dim]); }

ir::OpDef halo_exchange_def() { return halo_def(kHaloExchange); }
ir::OpDef halo_reduce_def() { return halo_def(kHaloReduce); }

}  // namespace trireme::ops
