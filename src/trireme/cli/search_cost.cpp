#include "trireme/cli/search_cost.h"

#include <algorithm>

#include "trireme/cli/output.h"
#include "trireme/cli/work_progress.h"
#include "trireme/compress/search_runs.h"
#include "trireme/core/error.h"

namespace trireme::cli {
namespace {

// Shorter, longer, narrower, wider: heads of the same size throughout.
std::vector<compress::ModelShape> shapes_around(const compress::ModelShape& base) {
  std::vector<compress::ModelShape> shapes;
  const auto add = [&](std::int64_t layers, std::int64_t width, std::int64_t ffn) {
    const std::int64_t heads = base.heads * width / base.width;
    if (layers < 1 || heads < 1 || heads * base.width != base.heads * width) return;
    const compress::ModelShape shape{layers, width, heads, ffn};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  };
  add(base.layers, base.width, base.ffn);
  add(std::max<std::int64_t>(1, base.layers / 2), base.width, base.ffn);
  add(2 * base.layers, base.width, base.ffn);
  add(base.layers, base.width, 2 * base.ffn);
  add(base.layers, 2 * base.width, 2 * base.ffn);
  add(1, 2 * base.width, 4 * base.ffn);
  add(base.layers, base.width / 2, base.ffn / 2);
  return shapes;
}

class DecodeMeasuring {
 public:
  DecodeMeasuring(const compress::ShapeSpace& space, const train::Registry& registry)
      : space_(space), registry_(registry) {}

  compress::DecodeCost run(double budget) {
    measure(shapes_around(space_.base()));
    compress::DecodeCost cost = compress::fit_decode_cost(samples_);
    // Where the search will be, which may be far from the given shape.
    const auto of = [&](const compress::ModelShape& shape) {
      return compress::cost_of(space_.with(shape), compress::Budget::Kind::decode, registry_, &cost);
    };
    const double most = budget > 0 ? budget : of(space_.base()).value_or(0);
    std::vector<compress::ModelShape> there;
    SplitMix random(1);
    constexpr std::size_t kThere = 6;
    for (int tries = 0; tries < 20 && there.size() < kThere; ++tries)
      if (const auto shape = space_.draw(random, of, most)) there.push_back(*shape);
    measure(there);
    return compress::fit_decode_cost(samples_, most);
  }

 private:
  void measure(const std::vector<compress::ModelShape>& shapes) {
    std::vector<train::Config> configs;
    for (const compress::ModelShape& shape : shapes) {
      train::Config config = space_.with(shape);
      // What no model has is left out.
      if (compress::cost_of(config, compress::Budget::Kind::parameters, registry_)) configs.push_back(config);
    }
    WorkProgress progress;
    const auto more = compress::measure_decoding(configs, registry_, [&](std::size_t done, std::size_t all) {
      progress.count("measuring what a token takes here", done, all);
    });
    progress.finish();
    samples_.insert(samples_.end(), more.begin(), more.end());
  }

  const compress::ShapeSpace& space_;
  const train::Registry& registry_;
  std::vector<compress::DecodeSample> samples_;
};

}  // namespace

compress::DecodeCost decode_cost_for(const compress::ShapeSpace& space, double budget,
                                     const std::filesystem::path& folder, const train::Registry& registry,
                                     comm::Communicator* world) {
  const std::filesystem::path file = folder / compress::kDecodeFile;
  if (world == nullptr || world->rank() == 0) {
    compress::check_search_folder(folder);
    if (!compress::read_decode_cost(file)) {
      const compress::DecodeCost cost = DecodeMeasuring(space, registry).run(budget);
      std::filesystem::create_directories(folder);
      compress::write_decode_cost(cost, file);
    }
  }
  if (world != nullptr) world->barrier();
  const auto cost = compress::read_decode_cost(file);
  if (!cost) fail("{} is not there: the processes of a search share its folder", file.string());
  return *cost;
}

}  // namespace trireme::cli
