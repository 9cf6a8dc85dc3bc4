#include <algorithm>

#include "trireme/cli/lessons/lesson.h"
#include "trireme/comm/measure.h"
#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_collectives(const Classroom&) {
  constexpr int kRanks = 4;
  constexpr double kBandwidth = 200e6;
  constexpr double kLatency = 200e-6;
  fmt::print(
      "An all-reduce gives every rank the sum of all ranks' tensors. The algorithms differ in how many messages "
      "follow\n"
      "each other and how many bytes a rank sends. Over a link with latency a and bandwidth b, a rank that sends n\n"
      "messages of s bytes in all takes about n·a + s/b. Here {} ranks are threads, and the link is emulated: 200 "
      "MB/s,\n"
      "200 µs.\n\n",
      kRanks);
  using comm::Algorithm;
  bool exact = true;
  for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{1} << 20}) {
    std::vector<comm::Measurement> measured;
    comm::threads::run(kRanks, {.link = "200MB/s,200us"}, [&](comm::Communicator& c) {
      for (const Algorithm algorithm :
           {Algorithm::sequential, Algorithm::tree, Algorithm::parallel, Algorithm::ring, Algorithm::recursive}) {
        const comm::Measurement m = comm::measure_all_reduce(c, algorithm, bytes, {.batches = 5});
        if (c.rank() == 0) measured.push_back(m);
      }
    });
    double slowest = 0;
    for (const comm::Measurement& m : measured) slowest = std::max(slowest, m.median_us);
    fmt::print("{}\n{:<12}{:>10}{:>16}{:>12}{:>12}\n", format_bytes(bytes), "algorithm", "messages", "bytes sent",
               "n·a + s/b", "measured");
    for (const comm::Measurement& m : measured) {
      const comm::Law law = comm::law_of(comm::TransportKind::emulated, m.algorithm, bytes, 4, kRanks);
      exact = exact && law.steps == m.steps && law.sent == m.sent;
      fmt::print("{:<12}{:>10}{:>16}{:>9.2f} ms{:>9.2f} ms  {}\n", comm::name_of(m.algorithm), m.steps,
                 format_count(m.sent),
                 1e3 * (kLatency * static_cast<double>(law.steps) + static_cast<double>(law.sent) / kBandwidth),
                 1e-3 * m.median_us, bar(m.median_us / slowest, 30));
    }
    fmt::print("\n");
  }
  fmt::print("law     few messages win with small tensors, few bytes with large ones\n");
  fmt::print(
      "law     ring and recursive send 2S(N−1)/N bytes, the least there is; messages and bytes are as stated {}\n",
      mark(exact));
  return exact;
}

}  // namespace trireme::cli
