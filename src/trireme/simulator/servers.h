#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::simulator {

// What a parameter server does in a step, as a program that can be walked: it receives what its workers push, updates,
// and sends what they pull.
//
//   worker   … push g1 · push g2 · pull w1 · pull w2
//   server   receive g1 · receive g2 · (its update) · send w1 · send w2
struct Serving {
  struct Answer {
    std::size_t instruction = 0;  // of the server's
    std::size_t worker = 0;       // of `workers`
    std::size_t message = 0;      // the worker's push or pull
  };
  program::Program program;
  std::vector<Answer> answers;
};

// `workers` are the steps of those that differ; `place` is how they name the server.
Serving serving(const program::Program& update, std::span<const program::Program* const> workers, int place);

}  // namespace trireme::simulator
