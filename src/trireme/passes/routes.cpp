#include "trireme/passes/routes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/ir/slice.h"

namespace trireme::passes {
namespace {

using ir::Mesh;
using ir::Sharding;

std::size_t place(int i) { return static_cast<std::size_t>(i); }

const char* name_of(RouteStep::Kind kind) {
  switch (kind) {
    case RouteStep::Kind::slice: return "slice";
    case RouteStep::Kind::all_gather: return "all_gather";
    case RouteStep::Kind::all_reduce: return "all_reduce";
    case RouteStep::Kind::reduce_scatter: return "reduce_scatter";
    case RouteStep::Kind::all_to_all: break;
  }
  return "all_to_all";
}

// Without the sums over some axes.
void erase_partial(Sharding& sharding, const std::string& axes) {
  for (const std::string& axis : split(axes, '+'))
    std::erase_if(sharding.partial, [&](const Sharding::Partial& p) { return p.axis == axis; });
}

void add_axes(Sharding& sharding, int dim, const std::string& axes) {
  for (std::string& axis : split(axes, '+')) sharding.dims[place(dim)].push_back(std::move(axis));
}
void drop_axes(Sharding& sharding, int dim, const std::string& axes) {
  sharding.dims[place(dim)].resize(sharding.dims[place(dim)].size() - split(axes, '+').size());
}

// The innermost axes of a dimension that go together: the last one, or all parts of an axis.
std::string innermost(const std::vector<std::string>& axes, const Mesh& mesh) {
  const auto parts = ir::parts_of(mesh, ir::axis_of_part(axes.back()));
  if (parts.size() < 2 || parts.size() > axes.size() || !std::equal(parts.rbegin(), parts.rend(), axes.rbegin()))
    return axes.back();
  return fmt::format("{}", fmt::join(parts, "+"));
}

bool is_partial(const Sharding& sharding, const std::string& axis) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [&](const Sharding::Partial& p) { return p.axis == axis; });
}

// A key that distinguishes shardings of one value.
std::string key_of(const Sharding& sharding) { return sharding.str(); }

}  // namespace

std::string RouteStep::str() const {
  std::string text = fmt::format("{} {}", name_of(kind), axis);
  if (dim >= 0) text += fmt::format(" {}", dim);
  if (to >= 0) text += fmt::format("→{}", to);
  return text;
}

std::int64_t ranks_along(const std::vector<std::string>& axes, const Mesh& mesh) {
  std::int64_t ranks = 1;
  for (const std::string& axis : axes) ranks *= mesh.size_of(axis);
  return ranks;
}

TensorType local_type(const TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  TensorType local = type;
  for (std::size_t d = 0; d < sharding.dims.size(); ++d) {
    const std::int64_t parts = ranks_along(sharding.dims[d], mesh);
    std::int64_t& extent = local.shape[static_cast<int>(d)];
    extent = (extent + parts - 1) / parts;
  }
  return local;
}

TensorType local_type(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const Places& places) {
  TensorType local = local_type(type, sharding, mesh);
  for (std::size_t d = 0; d < sharding.dims.size(); ++d) {
    if (sharding.dims[d].empty() || !ir::is_spatial(sharding.dims[d].front())) continue;
    const std::string& axis = sharding.dims[d].front();
    const auto place = places.find(axis);
    if (place == places.end()) fail("there is no place along the axis {}", axis);
    const int dim = static_cast<int>(d);
    local.shape[dim] = ir::spatial_shard(type.shape[dim], mesh.size_of(axis), place->second).size();
  }
  return local;
}

bool may_shard_spatially(std::int64_t extent, const std::string& axis, const Mesh& mesh) {
  return extent >= mesh.size_of(axis);
}

bool shards(const Sharding& sharding, const std::string& axis) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(),
                     [&](const auto& axes) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); });
}

Sharding canonical(Sharding sharding, const TensorType& type, const Mesh& mesh) {
  sharding.dims.resize(place(type.shape.rank()));
  const auto in_mesh_order = [&](const std::string& a, const std::string& b) {
    return mesh.index_of(a) < mesh.index_of(b);
  };
  for (auto& axes : sharding.dims) std::sort(axes.begin(), axes.end(), in_mesh_order);
  std::sort(sharding.partial.begin(), sharding.partial.end(), [&](const auto& a, const auto& b) {
    const bool data = a.axis == ir::kDataAxis;
    if (data != (b.axis == ir::kDataAxis)) return data;
    return in_mesh_order(a.axis, b.axis);
  });
  return sharding;
}

Sharding after(const Sharding& sharding, const RouteStep& step) {
  Sharding next = sharding;
  switch (step.kind) {
    case RouteStep::Kind::slice: add_axes(next, step.dim, step.axis); break;
    case RouteStep::Kind::all_gather: drop_axes(next, step.dim, step.axis); break;
    case RouteStep::Kind::all_reduce: erase_partial(next, step.axis); break;
    case RouteStep::Kind::reduce_scatter:
      erase_partial(next, step.axis);
      add_axes(next, step.dim, step.axis);
      break;
    case RouteStep::Kind::all_to_all:
      drop_axes(next, step.dim, step.axis);
      add_axes(next, step.to, step.axis);
      break;
  }
  return next;
}

double bytes_of(const RouteStep& step, const TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  const auto local = static_cast<double>(local_type(type, sharding, mesh).bytes());
  const auto ranks = static_cast<double>(mesh.size_of(step.axis));
  switch (step.kind) {
    case RouteStep::Kind::slice: return 0;
    case RouteStep::Kind::all_gather: return (ranks - 1) * local;
    case RouteStep::Kind::all_reduce: return 2 * (ranks - 1) / ranks * local;
    case RouteStep::Kind::reduce_scatter:
    case RouteStep::Kind::all_to_all: break;
  }
  return (ranks - 1) / ranks * local;
}

std::vector<RouteStep> steps_from(const TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  std::vector<RouteStep> steps;
  const TensorType local = local_type(type, sharding, mesh);
  const auto rank = type.shape.rank();
  // Ranks get equal parts, so that one more axis may shard a dimension where its extent divides.
  // An image's slices are of unequal extents, and sharded by nothing else.
  const auto spatial = [](const std::vector<std::string>& axes) {
    return std::any_of(axes.begin(), axes.end(), [](const std::string& axis) { return ir::is_spatial(axis); });
  };
  const auto divides = [&](int d, const std::string& axis) {
    return !ir::is_spatial(axis) && !spatial(sharding.dims[place(d)]) &&
           type.shape[d] % ranks_along(sharding.dims[place(d)], mesh) == 0 && local.shape[d] % mesh.size_of(axis) == 0;
  };
  for (const Sharding::Partial& p : sharding.partial) {
    steps.push_back({RouteStep::Kind::all_reduce, p.axis, -1, -1, p.reduce});
    for (int d = 0; d < rank && p.reduce == Sharding::Reduce::sum; ++d)
      if (divides(d, p.axis)) steps.push_back({RouteStep::Kind::reduce_scatter, p.axis, d});
  }
  // Sums over several axes may be taken at once.
  const std::size_t partial = sharding.partial.size();
  for (std::size_t chosen = 0; partial > 1 && chosen < (std::size_t{1} << partial); ++chosen) {
    std::vector<std::string> axes;
    for (std::size_t i = 0; i < partial; ++i)
      if ((chosen >> i & 1) != 0 && sharding.partial[i].reduce == Sharding::Reduce::sum)
        axes.push_back(sharding.partial[i].axis);
    const std::string joined = fmt::format("{}", fmt::join(axes, "+"));
    if (axes.size() > 1) steps.push_back({RouteStep::Kind::all_reduce, joined});
    for (int d = 0; d < rank && ir::are_all_parts(mesh, axes); ++d)
      if (divides(d, joined)) steps.push_back({RouteStep::Kind::reduce_scatter, joined, d});
  }
  // Of a whole dimension ranks take slices of which the last may end with zeros.
  const auto may_slice = [&](int d, const std::string& axis) {
    if (divides(d, axis)) return true;
    const bool whole = sharding.dims[place(d)].empty();
    return whole &&
           (ir::is_spatial(axis) ? may_shard_spatially(type.shape[d], axis, mesh) : type.shape[d] > mesh.size_of(axis));
  };
  for (int d = 0; d < rank; ++d) {
    const auto& axes = sharding.dims[place(d)];
    if (!axes.empty()) {
      // Shards that end with zeros are not those of fewer ranks, put together: 13, 13, 13 and 11 are not 25 and 25.
      const auto is_exact = [&](const std::string& gathered) {
        const Sharding left = after(sharding, {RouteStep::Kind::all_gather, gathered, d});
        return left.dims[place(d)].empty() || spatial(axes) ||
               local_type(type, left, mesh).shape[d] == local.shape[d] * mesh.size_of(gathered);
      };
      std::vector<std::string> together = {axes.back()};
      if (const std::string all = innermost(axes, mesh); all != axes.back()) together.push_back(all);
      // Axes that have nothing to do with each other are gathered at once where it must be.
      if (!is_exact(together.back())) together.push_back(fmt::format("{}", fmt::join(axes, "+")));
      for (const std::string& gathered : together) {
        if (!is_exact(gathered)) continue;
        steps.push_back({RouteStep::Kind::all_gather, gathered, d});
        for (int to = 0; to < rank; ++to)
          if (to != d && !ir::is_spatial(axes.back()) && divides(to, gathered) &&
              type.shape[d] % ranks_along(axes, mesh) == 0)
            steps.push_back({RouteStep::Kind::all_to_all, gathered, d, to});
      }
    }
    for (const Mesh::Axis& axis : mesh.axes)
      if (axis.size > 1 && axis.name != ir::kPipelineAxis && !shards(sharding, axis.name) &&
          !is_partial(sharding, axis.name) && may_slice(d, axis.name))
        steps.push_back({RouteStep::Kind::slice, axis.name, d});
    // Over the parts of an axis at once: a slice that ends with zeros is not sliced again.
    for (const Mesh::Axis& axis : mesh.axes) {
      const std::vector<std::string> parts = ir::parts_of(mesh, ir::axis_of_part(axis.name));
      const auto used = [&](const std::string& part) { return shards(sharding, part) || is_partial(sharding, part); };
      if (parts.size() < 2 || parts.front() != axis.name || !axes.empty() ||
          std::any_of(parts.begin(), parts.end(), used))
        continue;
      const std::int64_t ranks = ranks_along(parts, mesh);
      if (type.shape[d] % ranks != 0 && type.shape[d] > ranks)
        steps.push_back({RouteStep::Kind::slice, fmt::format("{}", fmt::join(parts, "+")), d});
    }
  }
  return steps;
}

std::optional<Route> cheapest_route(const TensorType& type, const Sharding& from, const Sharding& to,
                                    const Mesh& mesh) {
  // A step counts for less than any two routes differ by, and for more than sums of fractions are wrong by.
  const double step_bytes = 1e-12 * static_cast<double>(type.bytes());
  struct Way {
    double bytes;
    Sharding sharding;
    std::vector<RouteStep> steps;
    double cost = 0;
    bool operator<(const Way& other) const { return cost > other.cost; }  // the best is on top of the queue
  };
  const Sharding start = canonical(from, type, mesh);
  const std::string goal = key_of(canonical(to, type, mesh));
  if (key_of(start) == goal) return Route{};
  std::priority_queue<Way> ways;
  std::map<std::string, bool> settled;
  ways.push({0, start, {}, 0});
  while (!ways.empty()) {
    const Way way = ways.top();
    ways.pop();
    const std::string here = key_of(way.sharding);
    if (here == goal) return Route{way.steps, way.bytes};
    if (settled[here]) continue;
    settled[here] = true;
    std::vector<RouteStep> steps = steps_from(type, way.sharding, mesh);
    // Over several axes at once, where the last shards end with zeros: such a slice is not sliced again.
    for (std::size_t d = 0; d < to.dims.size(); ++d) {
      const std::vector<std::string>& axes = to.dims[d];
      const std::int64_t extent = type.shape[static_cast<int>(d)];
      const std::int64_t ranks = ranks_along(axes, mesh);
      const auto used = [&](const std::string& a) { return shards(way.sharding, a) || is_partial(way.sharding, a); };
      if (axes.size() > 1 && way.sharding.dims[d].empty() && extent % ranks != 0 && extent > ranks &&
          !ir::are_all_parts(mesh, axes) && std::none_of(axes.begin(), axes.end(), used))
        steps.push_back({RouteStep::Kind::slice, fmt::format("{}", fmt::join(axes, "+")), static_cast<int>(d)});
    }
    for (const RouteStep& step : steps) {
      // A sum that is wanted stays one; and an axis is brought in only where it is wanted.
      const std::vector<std::string> axes = split(step.axis, '+');
      if (std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) { return is_partial(to, axis); }))
        continue;
      if (step.kind == RouteStep::Kind::slice && !shards(to, axes.front()) && !shards(from, axes.front())) continue;
      Way next{way.bytes + bytes_of(step, type, way.sharding, mesh), after(way.sharding, step), way.steps, 0};
      next.steps.push_back(step);
      next.cost = next.bytes + step_bytes * static_cast<double>(next.steps.size());
      if (!settled[key_of(next.sharding)]) ways.push(std::move(next));
    }
  }
  return std::nullopt;
}

}  // namespace trireme::passes
