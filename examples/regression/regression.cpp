// Linear regression under the mean absolute error, Σ |y − w·x| / N. Its gradient is a sum over all samples, and the
// lesson is how several threads may build it: alone (slow), racing for one sum (wrong), taking turns at it (slower
// still), or each by itself with one reduction at the end (right and quick). The last is what training on many ranks
// does: the same fit is then repeated with ranks that never share a number and meet in an all-reduce.
#include <trireme/comm.h>
#include <trireme/error.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tri = trireme;

namespace {

constexpr int kFeatures = 8;
// The gradient by each weight, and the loss in the last place.
using Sums = std::array<double, kFeatures + 1>;

struct Samples {
  std::vector<std::array<float, kFeatures>> x;
  std::vector<float> y;
};

// y = w·x with w = 1, 2, 3 …, and some noise.
Samples make_samples(int count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Samples s;
  s.x.resize(static_cast<std::size_t>(count));
  s.y.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < s.y.size(); ++i) {
    s.y[i] = 0.1F * normal(random);
    for (int j = 0; j < kFeatures; ++j) {
      const float value = normal(random);
      s.x[i][static_cast<std::size_t>(j)] = value;
      s.y[i] += static_cast<float>(j + 1) * value;
    }
  }
  return s;
}

// Calls add(place, value) for every term of samples [begin, end).
template <class Add>
void terms(const Samples& s, const Sums& w, std::size_t begin, std::size_t end, Add&& add) {
  for (std::size_t i = begin; i < end; ++i) {
    double error = s.y[i];
    for (std::size_t j = 0; j < kFeatures; ++j) error -= w[j] * s.x[i][j];
    const double sign = error > 0 ? 1.0 : -1.0;
    for (std::size_t j = 0; j < kFeatures; ++j) add(j, -sign * s.x[i][j]);
    add(kFeatures, std::abs(error));
  }
}

// Runs body(begin, end) over the samples on `threads` threads.
template <class Body>
void in_parallel(std::size_t samples, int threads, Body&& body) {
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    const auto cut = [&](int k) { return samples * static_cast<std::size_t>(k) / static_cast<std::size_t>(threads); };
    workers.emplace_back(body, cut(t), cut(t + 1));
  }
  for (std::thread& worker : workers) worker.join();
}

Sums alone(const Samples& s, const Sums& w, int) {
  Sums sums{};
  terms(s, w, 0, s.y.size(), [&](std::size_t j, double value) { sums[j] += value; });
  return sums;
}

// Reading, adding and writing are three things: what another thread wrote in between is lost. (The accesses are atomic,
// so that the program is merely wrong. A plain `sum += value` would be undefined.)
Sums racing(const Samples& s, const Sums& w, int threads) {
  std::array<std::atomic<double>, kFeatures + 1> shared{};
  in_parallel(s.y.size(), threads, [&](std::size_t begin, std::size_t end) {
    terms(s, w, begin, end, [&](std::size_t j, double value) {
      shared[j].store(shared[j].load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    });
  });
  Sums sums{};
  for (std::size_t j = 0; j < sums.size(); ++j) sums[j] = shared[j].load();
  return sums;
}

Sums locked(const Samples& s, const Sums& w, int threads) {
  Sums sums{};
  std::mutex mutex;
  in_parallel(s.y.size(), threads, [&](std::size_t begin, std::size_t end) {
    terms(s, w, begin, end, [&](std::size_t j, double value) {
      const std::lock_guard lock(mutex);
      sums[j] += value;
    });
  });
  return sums;
}

Sums reduced(const Samples& s, const Sums& w, int threads) {
  Sums sums{};
  std::mutex mutex;
  in_parallel(s.y.size(), threads, [&](std::size_t begin, std::size_t end) {
    Sums mine{};
    terms(s, w, begin, end, [&](std::size_t j, double value) { mine[j] += value; });
    const std::lock_guard lock(mutex);
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += mine[j];
  });
  return sums;
}

struct Fit {
  Sums w{};
  Sums w_before{};  // the last step's
  double loss = 0;  // with those
};

template <class Gradient>
Fit fit(int steps, double samples, Gradient&& gradient) {
  Fit f;
  for (int step = 0; step < steps; ++step) {
    const Sums sums = gradient(f.w);
    f.w_before = f.w;
    const double rate = 0.8 * (1 - static_cast<double>(step) / steps);
    for (std::size_t j = 0; j < kFeatures; ++j) f.w[j] -= rate * sums[j] / samples;
    f.loss = sums[kFeatures] / samples;
  }
  return f;
}

void report(const char* name, const Fit& f, const Samples& s, double seconds) {
  double off = 0;
  for (std::size_t j = 0; j < kFeatures; ++j) off = std::max(off, std::abs(f.w[j] - static_cast<double>(j + 1)));
  const double exact = alone(s, f.w_before, 1)[kFeatures] / static_cast<double>(s.y.size());
  std::printf("%-8s %8.1f ms   loss %.4f, in truth %.4f   weights off by at most %.4f\n", name, 1e3 * seconds, f.loss,
              exact, off);
}

template <class Body>
double seconds_of(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 100'000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  constexpr int kSteps = 60;
  if (samples < 1 || threads < 1) {
    std::fprintf(stderr, "error: regression [SAMPLES [THREADS]], both at least 1\n");
    return 2;
  }
  const Samples s = make_samples(samples);
  std::printf("%d samples, %d features, %d steps, %d threads\n", samples, kFeatures, kSteps, threads);

  struct Variant {
    const char* name;
    Sums (*gradient)(const Samples&, const Sums&, int);
  };
  for (const Variant& v : {Variant{"alone", alone}, {"racing", racing}, {"locked", locked}, {"reduced", reduced}}) {
    Fit f;
    const double seconds =
        seconds_of([&] { f = fit(kSteps, samples, [&](const Sums& w) { return v.gradient(s, w, threads); }); });
    report(v.name, f, s, seconds);
  }

  try {
    Fit f;
    const double seconds = seconds_of([&] {
      tri::run_ranks(threads,
                     [&](tri::Communicator& comm) {
                       const auto cut = [&](int k) {
                         return s.y.size() * static_cast<std::size_t>(k) / static_cast<std::size_t>(comm.size());
                       };
                       const Fit mine = fit(kSteps, samples, [&](const Sums& w) {
                         Sums sums{};
                         terms(s, w, cut(comm.rank()), cut(comm.rank() + 1),
                               [&](std::size_t j, double value) { sums[j] += value; });
                         comm.all_reduce(std::span<double>(sums));
                         return sums;
                       });
                       if (comm.rank() == 0) f = mine;
                     },
                     {.transport = "threads"});
    });
    report("ranks", f, s, seconds);
  } catch (const tri::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.message().c_str());
    return 1;
  }
  return 0;
}
