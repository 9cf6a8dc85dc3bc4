#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "trireme/core/dtype.h"

namespace trireme {

// A short list of extents kept in place: shapes are copied freely and compared often.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return dims_[static_cast<std::size_t>(rank_ - 1)]; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  void push_back(std::int64_t extent);

  // Product of all extents; of those in [first, last).
  std::int64_t elements() const { return elements(0, rank_); }
  std::int64_t elements(int first, int last) const;

  // Dimensions [first, last) as a shape of their own.
  Shape slice(int first, int last) const;
  Shape operator+(const Shape& tail) const;

  // All dimensions but the last as one: [4,64,128] → [256,128]. What has fewer than two is left as it is.
  Shape as_rows() const;

  // "[4,64,128]"; a scalar is "[]".
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Element type and extents of a tensor. An absent optional operand has `present == false`.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool present = true;

  static TensorType none() { return {DType::f32, {}, false}; }

  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return present ? static_cast<std::size_t>(elements()) * size_of(dtype) : 0; }

  // "f32[4,64]"
  std::string str() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace trireme
