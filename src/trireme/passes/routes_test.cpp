#include "trireme/passes/routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "trireme/ir/axis_parts.h"

namespace trireme::passes {
namespace {

using ir::Sharding;

std::string route_text(const std::string& from, const std::string& to, const std::string& mesh,
                       const Shape& shape = {12, 12}) {
  const auto route =
      cheapest_route({DType::f32, shape}, ir::parse_sharding(from), ir::parse_sharding(to), ir::parse_mesh(mesh));
  if (!route) return "none";
  std::string text;
  for (const RouteStep& step : route->steps) text += (text.empty() ? "" : ", ") + step.str();
  return text;
}

TEST(Routes, OneForEveryChange) {
  EXPECT_EQ(route_text("[_,tp]", "[_,tp]", "tp=2"), "");
  EXPECT_EQ(route_text("[_,_]", "[_,tp]", "tp=2"), "slice tp 1");
  EXPECT_EQ(route_text("[_,tp]", "[_,_]", "tp=2"), "all_gather tp 1");
  EXPECT_EQ(route_text("[_,_] partial(sum:tp)", "[_,_]", "tp=2"), "all_reduce tp");
  EXPECT_EQ(route_text("[_,_] partial(max:tp)", "[tp,_]", "tp=2"), "all_reduce tp, slice tp 0");
  EXPECT_EQ(route_text("[_,_] partial(sum:tp)", "[tp,_]", "tp=2"), "reduce_scatter tp 0");
  EXPECT_EQ(route_text("[tp,_]", "[_,tp]", "tp=2"), "all_to_all tp 0→1");
}

TEST(Routes, SeveralAxes) {
  // What is sliced or scattered first is less to gather.
  EXPECT_EQ(route_text("[dp,_] partial(sum:tp)", "[_,tp]", "dp=2,tp=2"), "reduce_scatter tp 1, all_gather dp 0");
  EXPECT_EQ(route_text("[_,_] partial(sum:dp,sum:tp)", "[_,_]", "dp=2,tp=2"), "all_reduce dp+tp");
  // A sum that is to stay one is left alone.
  EXPECT_EQ(route_text("[tp,_] partial(sum:dp)", "[_,_] partial(sum:dp)", "dp=2,tp=2"), "all_gather tp 0");
}

// Two ranks share each of two heads; a vocabulary of 67 words is sharded over all four.
TEST(Routes, PartsOfAnAxisTogether) {
  const ir::Mesh mesh = ir::split_axis(ir::parse_mesh("tp=4"), "tp", 2);
  Sharding all;
  all.dims = {{}, {"tp.0", "tp.1"}};
  for (const std::int64_t words : {67, 64}) {
    const TensorType type{DType::f32, {3, words}};
    const auto gathered = cheapest_route(type, all, {}, mesh);
    const auto sliced = cheapest_route(type, {}, all, mesh);
    ASSERT_TRUE(gathered && sliced) << words;
    EXPECT_EQ(sliced->bytes, 0);
    EXPECT_EQ(sliced->steps.size(), words == 67 ? 1U : 2U);
  }
  // Fewer bytes are no reason to put shards of 13 together to 25.
  for (const std::int64_t words : {50, 61}) {
    Sharding rows;
    rows.dims = {{"tp.0", "tp.1"}, {}};
    const auto gathered = cheapest_route({DType::f32, {words, 24}}, rows, {}, mesh);
    ASSERT_TRUE(gathered) << words;
    ASSERT_EQ(gathered->steps.size(), 1U);
    EXPECT_EQ(gathered->steps.front().str(), "all_gather tp.0+tp.1 0");
  }
}

TEST(Routes, ExtentsThatDoNotDivide) {
  EXPECT_EQ(route_text("[tp,_]", "[_,_]", "tp=2", {7, 3}), "all_gather tp 0");
  // The last slice ends with zeros.
  EXPECT_EQ(route_text("[_,_]", "[tp,_]", "tp=2", {7, 3}), "slice tp 0");
  EXPECT_EQ(route_text("[_,_] partial(sum:tp)", "[_,_]", "tp=2", {7, 3}), "all_reduce tp");
}

// Every sharding of a matrix over two axes.
std::vector<Sharding> all_shardings() {
  std::vector<Sharding> all;
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) {
      Sharding s;
      s.dims.resize(2);
      const auto give = [&](int where, const char* axis) {
        if (where < 2) s.dims[static_cast<std::size_t>(where)].push_back(axis);
        if (where == 2) s.partial.push_back({axis, Sharding::Reduce::sum});
      };
      give(a, "dp");
      give(b, "tp");
      all.push_back(s);
    }
  return all;
}

// The fewest bytes by trying every sequence of so many steps over axes that `axes` names.
double least_bytes(const TensorType& type, const Sharding& from, const Sharding& to, const ir::Mesh& mesh, int steps,
                   const std::string& axes) {
  if (canonical(from, type, mesh).str() == canonical(to, type, mesh).str() && from.str() == to.str()) return 0;
  double least = std::numeric_limits<double>::infinity();
  if (steps == 0) return least;
  for (const RouteStep& step : steps_from(type, from, mesh)) {
    if (step.kind == RouteStep::Kind::slice && axes.find(step.axis) == std::string::npos) continue;
    const double own = bytes_of(step, type, from, mesh);
    least = std::min(least, own + least_bytes(type, after(from, step), to, mesh, steps - 1, axes));
  }
  return least;
}

TEST(Routes, AreTheCheapestThereAre) {
  const ir::Mesh mesh = ir::parse_mesh("dp=2,tp=3");
  const TensorType type{DType::f32, {12, 18}};
  for (const Sharding& from : all_shardings())
    for (const Sharding& to : all_shardings()) {
      bool keeps = true;  // sums cannot be undone
      for (const Sharding::Partial& p : to.partial)
        keeps = keeps && std::find(from.partial.begin(), from.partial.end(), p) != from.partial.end();
      const auto route = cheapest_route(type, from, to, mesh);
      ASSERT_EQ(route.has_value(), keeps) << from.str() << " → " << to.str();
      if (!keeps) continue;
      // Ranks along an axis that shards neither have no part in it.
      std::string axes;
      for (const Sharding* s : {&from, &to})
        for (const auto& dim : s->dims)
          for (const std::string& axis : dim) axes += axis + " ";
      EXPECT_EQ(route->bytes, least_bytes(type, from, to, mesh, 4, axes)) << from.str() << " → " << to.str();
      Sharding end = canonical(from, type, mesh);
      for (const RouteStep& step : route->steps) end = after(end, step);
      EXPECT_EQ(end.str(), canonical(to, type, mesh).str());
    }
}

// The same, by a search that knows nothing of the code: where a value's parts and terms are, which collectives change
// that, and what each of them moves by the sizes of what a rank has before and afterwards. All parts are equal.
class Exhaustive {
 public:
  Exhaustive(std::vector<std::int64_t> extents, const std::vector<std::pair<std::string, std::int64_t>>& axes)
      : extents_(std::move(extents)), axes_(axes) {}

  // Dijkstra's search over all shardings, by axes that may be sliced.
  double least(const Sharding& from, const Sharding& to) {
    std::map<std::string, double> done;
    std::multimap<double, Sharding> open = {{0.0, from}};
    const auto named = [&](const std::string& axis) { return has(from, axis) || has(to, axis); };
    while (!open.empty()) {
      const auto [bytes, at] = *open.begin();
      open.erase(open.begin());
      if (!done.emplace(key(at), bytes).second) continue;
      if (key(at) == key(to)) return bytes;
      for (const auto& [axis, ranks] : axes_) {
        const bool partial = is_term(at, axis);
        if (partial) {
          open.emplace(bytes + 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * size(at),
                       without_term(at, axis));
          for (std::size_t d = 0; d < extents_.size(); ++d)
            if (const auto next = with(without_term(at, axis), d, axis))
              open.emplace(bytes + size(at) - size(*next), *next);
        } else if (!has(at, axis) && named(axis)) {
          for (std::size_t d = 0; d < extents_.size(); ++d)
            if (const auto next = with(at, d, axis)) open.emplace(bytes, *next);
        }
        for (std::size_t d = 0; d < extents_.size(); ++d) {
          if (at.dims[d].empty() || at.dims[d].back() != axis) continue;
          Sharding whole = at;
          whole.dims[d].pop_back();
          open.emplace(bytes + size(whole) - size(at), whole);
          for (std::size_t to_dim = 0; to_dim < extents_.size(); ++to_dim)
            if (const auto next = to_dim == d ? std::nullopt : with(whole, to_dim, axis))
              open.emplace(bytes + size(at) * static_cast<double>(ranks - 1) / static_cast<double>(ranks), *next);
        }
      }
      // A sum over all of them at once.
      if (at.partial.size() == 2) {
        Sharding summed = at;
        summed.partial.clear();
        const auto ranks = static_cast<double>(ranks_of(at.partial[0].axis) * ranks_of(at.partial[1].axis));
        open.emplace(bytes + 2 * (ranks - 1) / ranks * size(at), summed);
      }
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  std::int64_t ranks_of(const std::string& axis) const {
    for (const auto& [name, ranks] : axes_)
      if (name == axis) return ranks;
    return 1;
  }
  static bool has(const Sharding& s, const std::string& axis) {
    for (const auto& dim : s.dims)
      if (std::find(dim.begin(), dim.end(), axis) != dim.end()) return true;
    return false;
  }
  static bool is_term(const Sharding& s, const std::string& axis) {
    return std::any_of(s.partial.begin(), s.partial.end(), [&](const auto& p) { return p.axis == axis; });
  }
  static Sharding without_term(Sharding s, const std::string& axis) {
    std::erase_if(s.partial, [&](const auto& p) { return p.axis == axis; });
    return s;
  }
  // Equal parts of equal parts alone.
  std::optional<Sharding> with(Sharding s, std::size_t dim, const std::string& axis) const {
    std::int64_t parts = ranks_of(axis);
    for (const std::string& other : s.dims[dim]) parts *= ranks_of(other);
    if (extents_[dim] % parts != 0) return std::nullopt;
    s.dims[dim].push_back(axis);
    return s;
  }
  // Bytes that a rank has.
  double size(const Sharding& s) const {
    double bytes = 4;
    for (std::size_t d = 0; d < extents_.size(); ++d) {
      bytes *= static_cast<double>(extents_[d]);
      for (const std::string& axis : s.dims[d]) bytes /= static_cast<double>(ranks_of(axis));
    }
    return bytes;
  }
  static std::string key(Sharding s) {
    std::sort(s.partial.begin(), s.partial.end(), [](const auto& a, const auto& b) { return a.axis < b.axis; });
    return s.str();
  }

  std::vector<std::int64_t> extents_;
  std::vector<std::pair<std::string, std::int64_t>> axes_;
};

TEST(Routes, AreTheCheapestByAnIndependentSearch) {
  struct Case {
    std::string mesh;
    std::vector<std::pair<std::string, std::int64_t>> axes;
    std::vector<std::int64_t> extents;
  };
  int compared = 0;
  for (const Case& c : {Case{"dp=2,tp=3", {{"dp", 2}, {"tp", 3}}, {12, 18}},
                        {"dp=2,tp=2", {{"dp", 2}, {"tp", 2}}, {4, 8}},
                        {"dp=3,tp=4", {{"dp", 3}, {"tp", 4}}, {12, 24}},
                        {"dp=2,tp=3", {{"dp", 2}, {"tp", 3}}, {6, 30}}})
    for (const Sharding& from : all_shardings())
      for (const Sharding& to : all_shardings()) {
        const TensorType type{DType::f32, {c.extents[0], c.extents[1]}};
        const ir::Mesh mesh = ir::parse_mesh(c.mesh);
        const auto route = cheapest_route(type, from, to, mesh);
        if (!route) continue;
        SCOPED_TRACE(fmt::format("{} {}: {} → {}", c.mesh, type.str(), from.str(), to.str()));
        EXPECT_NEAR(route->bytes, Exhaustive(c.extents, c.axes).least(from, to), 1e-6);
        ++compared;
      }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace trireme::passes
