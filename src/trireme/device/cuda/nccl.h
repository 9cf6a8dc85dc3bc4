#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "trireme/core/dtype.h"

namespace trireme::device::cuda {

// One rank's end of a group of GPUs, one rank on each, over NCCL. The library is opened when it is first asked for.
class Nccl {
 public:
  using Id = std::array<std::byte, 128>;  // identifies a group: made by one rank and broadcast

  // Whether this build knows it and the library is here.
  static bool available();
  static Id make_id();

  Nccl(const Id& id, int rank, int ranks);  // collective
  ~Nccl();                                  // NOLINT(performance-trivially-destructible): not where there is NCCL
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // Calls between the two are one operation.
  void begin() const;
  void end() const;

  void all_reduce(void* data, std::int64_t count, DType dtype, bool maximum, void* stream) const;
  void reduce_scatter(const void* whole, void* slice, std::int64_t slice_count, DType dtype, void* stream) const;
  void all_gather(const void* slice, void* whole, std::int64_t slice_count, DType dtype, void* stream) const;
  void reduce(const void* from, void* to, std::int64_t count, DType dtype, int root, void* stream) const;
  void broadcast(const void* from, void* to, std::int64_t count, DType dtype, int root, void* stream) const;
  void send(const void* from, std::size_t bytes, int to, void* stream) const;
  void receive(void* to, std::size_t bytes, int from, void* stream) const;

  // Throws if the library has met an error in what a stream was given. It does not block.
  void check() const;
  // Ends what streams have been given: kernels that wait for a rank that has failed return. Later calls throw.
  void abandon() noexcept;

 private:
  void* comm_ = nullptr;
};

}  // namespace trireme::device::cuda
