#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/core/dtype.h"

// All that is used of oneDNN, and the only place that knows it. Everything runs on the calling thread: the blocks that
// keep several threads busy are cut by the caller. Each object is prepared once for `workers` threads and then run
// by any of them at the same time, every one with its own number (0 … workers-1) and its own scratch.
//
// The memory that callers give follows from the shapes alone (allowance.h) and is the same on every CPU. On those with
// AVX-512 (bf16: with AVX512_BF16) all packing happens in it. oneDNN's kernels for older CPUs allocate packing buffers
// of their own, and few of them take bf16: there device/cpu/widened.h converts. On CPUs with AMX, products of bf16 are
// made by device/cpu/amx.h.
//
// ONEDNN_MAX_CPU_ISA chooses an older instruction set than the CPU has, as oneDNN defines it, for all of these.
namespace trireme::device::cpu {

std::string onednn_version();  // "2.6.3"

// c[m,n] = a[m,k] · b[k,n], or c += a · b, on row-major matrices with leading dimensions.
// Transposed operands are stored as a[k,m], b[n,k].
struct GemmSpec {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  DType input = DType::f32;   // f32 or bf16
  DType output = DType::f32;  // f32, or bf16 for bf16 inputs
  bool accumulate = false;    // output f32 only
  bool packed_b = false;      // b is given as `pack` leaves it
  friend bool operator==(const GemmSpec&, const GemmSpec&) = default;
};

// Dense matrices are used as they are; rows of others are first copied together in scratch.
//
// A b that serves many products (the weights of a layer, for all blocks of rows) is better packed once: the layout
// depends on n, k and the input type only. `pack` works on part 0 … parts()-1 of b, in any order and at the same time.
class AmxGemm;
class WidenedGemm;
class Gemm {
 public:
  Gemm(const GemmSpec& spec, int workers);
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  // From the shape alone (allowance.h), in multiples of 64; scratch is per worker. Buffers are 64-byte aligned.
  static std::size_t scratch_bytes(const GemmSpec& spec);
  static std::size_t packed_bytes(const GemmSpec& spec);

  // What the library asks for on this CPU. A product whose scratch is larger than the bytes above keeps scratch of its
  // own; a layout of b that is larger is not used.
  struct Wanted {
    std::size_t scratch = 0, packed = 0;
  };
  static Wanted wanted(const GemmSpec& spec);

  std::int64_t parts() const;
  void pack(int worker, std::int64_t part, const void* b, void* packed) const;

  void run(int worker, const void* a, const void* b, void* c, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<AmxGemm> amx_;          // in its place, where the CPU has tile instructions for the type
  std::unique_ptr<WidenedGemm> widened_;  // or where the library has no kernel for the type
};

// One pass of a two-dimensional convolution. Images x[n,h,w,c] and y[n,p,q,k], weights [k,r,s,c/groups].
struct ConvSpec {
  enum class Pass { forward, input_gradient, weight_gradient };
  Pass pass = Pass::forward;
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  std::int64_t k = 0, r = 0, s = 0;
  std::int64_t p = 0, q = 0;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::array<std::int64_t, 2> padding_after{0, 0};  // behind the image; `padding` is before it
  std::int64_t groups = 1;
  DType dtype = DType::f32;   // of the images, and of the weights unless they are the result: f32 or bf16
  bool bias = false;          // forward only; f32
  std::int64_t layout_n = 0;  // the n for which the weights' layout is chosen, to share it; 0: this n
};

// The library wants weights in a layout of its own choice. `pack` brings them there, once for all blocks of a batch;
// weight gradients come out in it (f32, padding included, so that partial results can be summed element by element) and
// are brought back by `unpack`.
class WidenedConv;
class Conv {
 public:
  Conv(const ConvSpec& spec, int workers);
  ~Conv();
  Conv(Conv&&) noexcept;
  Conv& operator=(Conv&&) noexcept;

  struct Bytes {
    std::size_t packed = 0;        // the weights in the library's layout
    std::size_t scratch = 0;       // of `run`, per worker
    std::size_t pack_scratch = 0;  // of `pack` and `unpack`
  };
  // From the shape alone (allowance.h).
  static Bytes bytes(const ConvSpec& spec);
  // What the library asks for on this CPU: that much is read and written. Rarely more than `bytes`.
  static Bytes wanted(const ConvSpec& spec);

  void pack(const void* weights, void* packed, void* scratch) const;
  // weights = packed, or weights += packed; both f32.
  void unpack(const void* packed, float* weights, bool accumulate, void* scratch) const;

  // forward reads x, weights and bias and writes y; input_gradient reads y and weights and writes x; weight_gradient
  // reads x and y and writes weights.
  void run(int worker, const void* x, const void* packed, const float* bias, const void* y, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<WidenedConv> widened_;
};

}  // namespace trireme::device::cpu
