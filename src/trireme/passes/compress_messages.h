#pragma once
#include <cstdint>
#include <string>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Stages exchange what the gradients are made of in fewer bytes: as bf16, or as int8 with a scale per block.
//
//   %s = send(%b)                  %b.bf16 = cast(%b) {to="bf16"}
//                           →      %s = send(%b.bf16)
//   %b = receive()                 %b.received = receive() {dtype="bf16"}
//                                  %b = cast(%b.received) {to="f32"}
//
// Of int8 the numbers and their scales are two messages. What would not be smaller is sent as it is. The gradients of
// parameters that several stages have are sent as they are, too: their copies must stay equal to the bit. Comes right
// after split.
class CompressMessages : public Pass {
 public:
  enum class Kind : std::uint8_t { bf16, int8 };
  struct Options {
    Kind kind = Kind::bf16;
    std::string graph = "micro";
  };
  explicit CompressMessages(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "compress-messages"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
