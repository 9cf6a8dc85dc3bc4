#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// One technique or clean-up over the graphs of a step. A pass takes its options when constructed, never searches, and
// leaves a module that verifies.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string name() const = 0;
  virtual void run(ir::Module& module) const = 0;
  // Whether a step without it is still the same step, only slower or larger.
  virtual bool optional() const { return false; }
};

// The one place through which every pass runs: it verifies the module after each, times it, writes it out when asked,
// and can leave one out by name.
class Pipeline {
 public:
  struct Options {
    std::filesystem::path dump = {};         // numbered files "03-fuse.txt"; empty: none
    std::vector<std::string> disabled = {};  // by name; unknown and indispensable ones are refused
    std::function<void(const std::string& pass, double seconds)> on_pass = {};
    // Only the passes from the first of that name to the one before `until`; empty: from the start, to the end.
    std::string from = {};
    std::string until = {};
  };

  template <class P, class... Args>
  Pipeline& add(Args&&... args) {
    passes_.push_back(std::make_unique<P>(std::forward<Args>(args)...));
    return *this;
  }

  void run(ir::Module& module, const Options& options) const;
  void run(ir::Module& module) const { run(module, Options{}); }
  std::vector<std::string> names() const;

 private:
  std::vector<std::unique_ptr<Pass>> passes_;
};

}  // namespace trireme::passes
