#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

// How threads may add to one number: the mean absolute error of a linear model, Σ |y − w·x| / N, four ways. For
// `trireme bench reduce` and the lesson.
namespace trireme::cli {

struct ReductionProblem {
  std::int64_t samples;
  int features;
  std::vector<float> x;
  std::vector<float> y;
  std::vector<float> w;

  ReductionProblem(std::int64_t n, int m);
  double error(std::int64_t i) const;
  // The sum, by one thread.
  double exact() const;
};

enum class Reduction { alone, racing, locked, partial };
constexpr std::array<Reduction, 4> kReductions = {Reduction::alone, Reduction::racing, Reduction::locked,
                                                  Reduction::partial};

struct ReductionText {
  const char* name;
  const char* how;
};
const ReductionText& text_of(Reduction reduction);

struct ReductionOutcome {
  double seconds;
  double sum;
};

// One pass over the data with `threads` threads: from the first that begins to the last that ends.
ReductionOutcome reduce(const ReductionProblem& p, Reduction reduction, int threads);

// What the four have shown. How threads meet is the machine's: where its cores are busy with other work, times and lost
// additions may say nothing, or the contrary, and what is right is all that is judged.
struct ReductionFigures {
  double alone, locked, partial;  // seconds
  double lost;                    // by racing, of 1
  bool right;                     // with a lock, and by partial sums
};
std::string reduction_law(const ReductionFigures& figures);

}  // namespace trireme::cli
