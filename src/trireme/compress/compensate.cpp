#include "trireme/compress/compensate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::compress {
namespace {

constexpr double kDamping = 0.01;
constexpr std::int64_t kPanel = 64;  // rows of the factor that are taken together
constexpr std::int64_t kTask = 16;   // rows of a weight of a task: they fit the second-level cache

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// y -= a · x
void subtract(double a, const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}

// A = UᵀU in place: the upper triangle becomes U; what is below it means nothing.
void factorise(std::vector<double>& a, std::int64_t k, ThreadPool& pool) {
  for (std::int64_t first = 0; first < k; first += kPanel) {
    const std::int64_t end = std::min(first + kPanel, k);
    for (std::int64_t p = first; p < end; ++p) {
      double* row = a.data() + p * k;
      if (!(row[p] > 0)) fail("the inputs' moments are not positive: the calibration rows gave no finite inputs");
      const double root = std::sqrt(row[p]);
      for (std::int64_t c = p; c < k; ++c) row[c] /= root;
      for (std::int64_t i = p + 1; i < end; ++i) subtract(row[i], row + i, a.data() + i * k + i, k - i);
    }
    pool.ranges(k - end, 8, [&](std::int64_t begin, std::int64_t last) {
      for (std::int64_t i = end + begin; i < end + last; ++i)
        for (std::int64_t p = first; p < end; ++p)
          subtract(a[at(p * k + i)], a.data() + p * k + i, a.data() + i * k + i, k - i);
    });
  }
}

// Columns from the largest inputs to the smallest.
std::vector<std::int64_t> order_of(std::span<const float> moments, std::int64_t k) {
  std::vector<std::int64_t> order(at(k));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return moments[at(a * k + a)] > moments[at(b * k + b)]; });
  return order;
}

// What is added to the diagonal.
double damping_of(std::span<const float> moments, std::int64_t k) {
  double mean = 0;
  for (std::int64_t i = 0; i < k; ++i) mean += moments[at(i * k + i)] / static_cast<double>(k);
  return kDamping * mean + 1e-12;
}

// R [k,k] of the moments in that order.
std::vector<float> factor_of(std::span<const float> moments, std::int64_t k, const std::vector<std::int64_t>& order,
                             ThreadPool& pool) {
  const double damping = damping_of(moments, k);
  // With rows and columns in reverse, the factor is an ordinary one.
  std::vector<double> a(at(k * k));
  const auto reversed = [&](std::int64_t i) { return order[at(k - 1 - i)]; };
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < k; ++j)
      a[at(i * k + j)] = moments[at(reversed(i) * k + reversed(j))] + (i == j ? damping : 0.0);
  factorise(a, k, pool);
  std::vector<float> r(at(k * k));
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = i; j < k; ++j) r[at(i * k + j)] = static_cast<float>(a[at((k - 1 - j) * k + k - 1 - i)]);
  return r;
}

// A scale for the elements of a group with the importances of their columns.
float best_scale(const float* elements, const float* importance, std::int64_t count, int bits) {
  const float widest = ops::group_scale(elements, count, bits);
  float best = widest;
  double least = -1;
  constexpr int kTries = 12;
  for (int t = 0; t < (bits == 8 ? 1 : kTries); ++t) {
    const float scale = widest * (1 - 0.03F * static_cast<float>(t));
    double error = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float off = elements[i] - static_cast<float>(ops::nearest_code(elements[i], scale, bits)) * scale;
      error += static_cast<double>(importance[i]) * off * off;
    }
    if (least < 0 || error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// Some rows of a weight with their codes and scales, and for each of them H·(w − ŵ).
class Refined {
 public:
  Refined(std::span<const float> weight, std::int64_t rows, std::int64_t k, const ops::CodeFormat& format,
          std::span<const float> moments, std::byte* codes, float* scales)
      : rows_(rows),
        k_(k),
        group_(format.group_of(k)),
        groups_(format.groups(k)),
        format_(format),
        moments_(moments),
        damping_(static_cast<float>(damping_of(moments, k))),
        codes_(codes),
        scales_(scales),
        code_(at(rows * k)),
        left_(at(rows * k), 0.0F) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < k; ++i)
        code_[at(row * k + i)] = static_cast<float>(ops::load_code(codes + row * format.row_bytes(k), i, format.bits));
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t row = 0; row < rows; ++row)
        add(i, weight[at(row * k + i)] - code_[at(row * k + i)] * scale(row, i), left_.data() + row * k);
  }

  // With ŵ = scale · code, the best change of a scale is cᵀ·H·(w − ŵ) / cᵀ·H·c.
  void fit_scales() {
    std::vector<float> products(at(rows_ * k_));  // H·c of one group
    for (std::int64_t g = 0; g < groups_; ++g) {
      std::fill(products.begin(), products.end(), 0.0F);
      for (std::int64_t i = g * group_; i < (g + 1) * group_; ++i)
        for (std::int64_t row = 0; row < rows_; ++row) add(i, code_[at(row * k_ + i)], products.data() + row * k_);
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* product = products.data() + row * k_;
        float* left = left_.data() + row * k_;
        double gain = 0, size = 0;
        for (std::int64_t i = g * group_; i < (g + 1) * group_; ++i) {
          gain += static_cast<double>(code_[at(row * k_ + i)]) * left[i];
          size += static_cast<double>(code_[at(row * k_ + i)]) * product[i];
        }
        if (!(size > 0)) continue;
        const auto change = static_cast<float>(gain / size);
        scales_[row * groups_ + g] += change;
        for (std::int64_t j = 0; j < k_; ++j) left[j] -= change * product[j];
      }
    }
  }

  // One column after another gets the code that is best while all others stay.
  void fit_codes(const std::vector<std::int64_t>& order) {
    for (const std::int64_t i : order)
      for (std::int64_t row = 0; row < rows_; ++row) {
        float& code = code_[at(row * k_ + i)];
        float* left = left_.data() + row * k_;
        const float best = code * scale(row, i) + left[i] / (moments_[at(i * k_ + i)] + damping_);
        const auto now = static_cast<float>(ops::nearest_code(best, scale(row, i), format_.bits));
        if (now == code) continue;
        add(i, (code - now) * scale(row, i), left);
        code = now;
      }
  }

  void store() {
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t i = 0; i < k_; ++i)
        ops::store_code(codes_ + row * format_.row_bytes(k_), i, static_cast<int>(code_[at(row * k_ + i)]),
                        format_.bits);
  }

 private:
  float scale(std::int64_t row, std::int64_t column) const { return scales_[row * groups_ + column / group_]; }
  // sums += amount · H's column i, which is its row.
  void add(std::int64_t i, float amount, float* sums) const {
    const float* column = moments_.data() + i * k_;
    for (std::int64_t j = 0; j < k_; ++j) sums[j] += amount * column[j];
    sums[i] += amount * damping_;
  }

  std::int64_t rows_, k_, group_, groups_;
  ops::CodeFormat format_;
  std::span<const float> moments_;
  float damping_;
  std::byte* codes_;
  float* scales_;
  std::vector<float> code_, left_;
};

}  // namespace

void quantize_compensated(std::span<const float> weight, std::int64_t n, std::int64_t k, const ops::CodeFormat& format,
                          std::span<const float> moments, ThreadPool& pool, std::byte* codes, float* scales,
                          int sweeps) {
  const std::vector<std::int64_t> order = order_of(moments, k);
  const std::vector<float> r = factor_of(moments, k, order, pool);
  const std::int64_t group = format.group_of(k), groups = format.groups(k);
  std::vector<float> importance(at(k));
  for (std::int64_t i = 0; i < k; ++i) importance[at(i)] = moments[at(i * k + i)];
  pool.ranges(n, kTask, [&](std::int64_t begin, std::int64_t end) {
    // By row: what the errors so far have left in each column, in the order of the columns.
    std::vector<float> left(at((end - begin) * k), 0.0F);
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t g = 0; g < groups; ++g)
        scales[row * groups + g] =
            best_scale(weight.data() + row * k + g * group, importance.data() + g * group, group, format.bits);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t column = order[at(i)];
      const float* factors = r.data() + i * k;
      for (std::int64_t row = begin; row < end; ++row) {
        float* own = left.data() + (row - begin) * k;
        const float element = weight[at(row * k + column)];
        const float scale = scales[row * groups + column / group];
        const int code = ops::nearest_code(element + own[i] / factors[i], scale, format.bits);
        ops::store_code(codes + row * format.row_bytes(k), column, code, format.bits);
        const float error = element - static_cast<float>(code) * scale;
        for (std::int64_t j = i + 1; j < k; ++j) own[j] += error * factors[j];
      }
    }
    if (sweeps == 0) return;
    Refined refined(weight.subspan(at(begin * k)), end - begin, k, format, moments, codes + begin * format.row_bytes(k),
                    scales + begin * groups);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      refined.fit_scales();
      refined.fit_codes(order);
    }
    refined.store();
  });
}

double output_error(std::span<const float> weight, std::span<const float> rounded, std::int64_t n, std::int64_t k,
                    std::span<const float> moments, ThreadPool& pool) {
  std::vector<double> changed(at(n)), whole(at(n));
  pool.ranges(n, 1, [&](std::int64_t begin, std::int64_t) {
    const float* w = weight.data() + begin * k;
    const float* v = rounded.data() + begin * k;
    std::vector<float> sums(at(k), 0.0F), own(at(k), 0.0F);
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < k; ++j) {
        sums[at(j)] += (w[i] - v[i]) * moments[at(i * k + j)];
        own[at(j)] += w[i] * moments[at(i * k + j)];
      }
    for (std::int64_t i = 0; i < k; ++i) {
      changed[at(begin)] += static_cast<double>(w[i] - v[i]) * sums[at(i)];
      whole[at(begin)] += static_cast<double>(w[i]) * own[at(i)];
    }
  });
  const double all = std::accumulate(whole.begin(), whole.end(), 0.0);
  return all > 0 ? std::sqrt(std::max(0.0, std::accumulate(changed.begin(), changed.end(), 0.0) / all)) : 0;
}

}  // namespace trireme::compress
