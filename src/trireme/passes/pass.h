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

// A pass whose options are decided when it is reached, by someone who looks at the module it will get.
class Decided : public Pass {
 public:
  using Decide = std::function<std::unique_ptr<Pass>(const ir::Module& module)>;
  Decided(std::string name, Decide decide) : name_(std::move(name)), decide_(std::move(decide)) {}
  std::string name() const override { return name_; }
  void run(ir::Module& module) const override { decide_(module)->run(module); }
  bool optional() const override { return true; }

 private:
  std::string name_;
  Decide decide_;
};

// The one place through which every pass runs: it verifies the module after each, times it, writes it out when asked,
// and can leave one out by name.
class Pipeline {
 public:
  struct Options {
    std::filesystem::path dump = {};         // numbered files "03-fuse.txt"; empty: none
    std::vector<std::string> disabled = {};  // by name; unknown and indispensable ones are refused
    std::function<void(const std::string& pass, double seconds)> on_pass = {};
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
