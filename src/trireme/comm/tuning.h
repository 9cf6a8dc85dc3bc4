#pragma once
#include <string>
#include <vector>

#include "trireme/comm/transport.h"

namespace trireme::comm {

// Which algorithm `automatic` means. Without measurements it is a fixed rule, so that a training run gives the same
// bits on every machine and day; measurements are used only by a caller that passes them to a world.
//
// The rule: what the transport does itself where it has a way of its own; else recursive up to 32 KiB (few steps) and
// ring above (few bytes per step, no folding).
struct Tuning {
  // Up to `bytes`, `algorithm` was the quickest all-reduce; entries of one transport and rank count go up.
  struct Entry {
    TransportKind transport = TransportKind::threads;
    int ranks = 0;
    std::size_t bytes = 0;
    Algorithm algorithm = Algorithm::automatic;
  };
  std::vector<Entry> entries;
};

// Never `automatic`. A rank count that was not measured falls back to the rule.
Algorithm choose(const Tuning& tuning, TransportKind transport, Collective collective, std::size_t bytes, int ranks);

// As text, a line per entry ("threads 4 65536 native"); parsing refuses anything else, naming `source` and the line.
std::string to_text(const Tuning& tuning);
Tuning parse_tuning(std::string_view text, const std::string& source);

// Where this machine's measurements are kept: $XDG_CACHE_HOME/trireme/all_reduce.txt, or under ~/.cache.
std::string tuning_file();
Tuning load_tuning(const std::string& file);  // empty when there is no such file
void save_tuning(const Tuning& tuning, const std::string& file);

}  // namespace trireme::comm
