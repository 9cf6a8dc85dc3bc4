#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::simulator {

// What a rank that answers messages (program::Exchange) does in a step, as a program that can be walked: it receives
// what its workers push, updates, and sends what they pull.
//
//   worker   … push g1 · push g2 · pull w1 · pull w2
//   keeper   receive g1 · receive g2 · (its update) · send w1 · send w2
struct Answers {
  struct Answer {
    std::size_t instruction = 0;  // of `program`
    std::size_t worker = 0;       // of `workers`
    std::size_t message = 0;      // the worker's push or pull
  };
  program::Program program;
  std::vector<Answer> all;
};

// `workers` are the steps of those that differ; `place` is how they name the rank.
Answers answering(const program::Program& update, std::span<const program::Program* const> workers, int place);

}  // namespace trireme::simulator
