#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"

namespace trireme::cli {

// A row of a table of published runs.
struct PublishedRun {
  std::string place;  // file and line
  std::string name;
  std::vector<std::string> settings;  // of a configuration
  cluster::Cluster cluster;
  // What was published, and in what it is counted.
  enum class Metric : std::uint8_t { seconds, hfu_tflops, mfu_percent, samples_per_gpu, tokens_per_gpu };
  Metric metric = Metric::seconds;
  double value = 0;
  std::string unit;
  std::int64_t context_ranks = 1;  // context parallelism
  double batch = 0, context = 0, layers = 0, width = 0, vocab = 0, gpus = 0;
};

// The rows of a table such as bench/published_runs.csv. Empty lines and those from "#" on are none. Refuses, by file,
// line and column, with what is expected there and the nearest of it, every cell that does not say what is simulated.
std::vector<PublishedRun> read_published(const std::string& file);

// What a step of so many seconds is in the row's own metric.
double in_unit(const PublishedRun& run, double seconds);

}  // namespace trireme::cli
