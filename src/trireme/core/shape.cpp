#include "trireme/core/shape.h"

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme {

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  TRI_CHECK(dims.size() <= kMaxRank, "rank {} is above {}", dims.size(), kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

void Shape::push_back(std::int64_t extent) {
  TRI_CHECK(rank_ < kMaxRank, "rank above {}", kMaxRank);
  dims_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements(int first, int last) const {
  std::int64_t product = 1;
  for (int i = first; i < last; ++i) product *= (*this)[i];
  return product;
}

Shape Shape::slice(int first, int last) const {
  return Shape(std::span(dims_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)));
}

Shape Shape::operator+(const Shape& tail) const {
  Shape joined = *this;
  for (std::int64_t extent : tail) joined.push_back(extent);
  return joined;
}

Shape Shape::as_rows() const { return rank_ < 2 ? *this : Shape{elements(0, rank_ - 1), back()}; }

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ",")); }

std::string TensorType::str() const { return present ? name_of(dtype) + shape.str() : "none"; }

}  // namespace trireme
