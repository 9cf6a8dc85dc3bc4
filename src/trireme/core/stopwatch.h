#pragma once
#include <chrono>
#include <ctime>

namespace trireme {

// Seconds of the clock on the wall, and of all cores for this process.
struct Spent {
  double wall = 0;
  double cpu = 0;

  Spent operator+(const Spent& other) const { return {wall + other.wall, cpu + other.cpu}; }
};

// From its making on.
class Stopwatch {
 public:
  Spent spent() const {
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(), cpu_now() - cpu_};
  }

 private:
  static double cpu_now() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double cpu_ = cpu_now();
};

}  // namespace trireme
