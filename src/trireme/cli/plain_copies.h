#pragma once
#include <array>
#include <filesystem>
#include <functional>
#include <memory>

#include "trireme/program/program.h"

namespace trireme::cli {

constexpr std::array<const char*, 3> kPhases = {"forward", "backward", "update"};
std::size_t phase_of(ir::Phase phase);  // in them

double seconds_of(const std::function<void()>& work);

// The copies that a program makes between tiers, without its computation.
class PlainCopies {
 public:
  struct Rates {
    double out = 0;  // bytes per second
    double in = 0;
  };

  // Of what leaves for the host's memory, or else for a file in `folder`. `program` must outlive it.
  static std::unique_ptr<PlainCopies> of(const program::Program& program, const std::filesystem::path& folder);

  PlainCopies(const PlainCopies&) = delete;
  PlainCopies& operator=(const PlainCopies&) = delete;
  virtual ~PlainCopies() = default;

  // Of large blocks one behind the other, each direction alone: what the way there can do.
  virtual Rates sequential() = 0;
  // Of a phase's copies, both directions at once as the program has them.
  virtual double seconds(std::size_t phase) = 0;
  // All copies of one direction with nothing overlapped: bytes per second.
  double rate(program::Instruction::Kind kind);
  double bytes(program::Instruction::Kind kind, std::size_t phase) const;

 protected:
  explicit PlainCopies(const program::Program& program) : program_(program) {}
  virtual void run(program::Instruction::Kind kind, std::size_t phase) = 0;
  std::size_t largest() const;

  const program::Program& program_;
};

}  // namespace trireme::cli
