#pragma once
#include <filesystem>

#include "trireme/comm/communicator.h"
#include "trireme/compress/decode_cost.h"
#include "trireme/compress/search.h"

namespace trireme::cli {

// What a decoded token takes here, for a search in `folder`: measured on the given shape, on shapes around it, and on a
// few that use the budget, and kept in the folder. The first of several processes measures.
compress::DecodeCost decode_cost_for(const compress::ShapeSpace& space, double budget,
                                     const std::filesystem::path& folder, const train::Registry& registry,
                                     comm::Communicator* world);

}  // namespace trireme::cli
