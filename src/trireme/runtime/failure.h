#pragma once
#include <atomic>
#include <exception>
#include <mutex>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::runtime {

// The first error of a run, whichever stream meets it. Once there is one, the rest of the program is skipped.
class Failure {
 public:
  explicit Failure(const program::Program& program) : program_(program) {}

  bool happened() const { return happened_.load(std::memory_order_acquire); }
  void clear() {
    happened_ = false;
    error_ = nullptr;
  }

  // Calls `work`; what it throws is of instruction i.
  template <class F>
  void guard(std::size_t i, F&& work) {
    try {
      work();
    } catch (...) {
      keep(i);
    }
  }

  // To be called when no stream has work.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // In a handler.
  void keep(std::size_t i) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    const std::string where = program::describe(program_, i);
    try {
      throw;
    } catch (Error& e) {
      error_ = std::make_exception_ptr(e.within(where));
    } catch (const std::exception& e) {
      error_ = std::make_exception_ptr(Error(Error::Kind::failure, where + ": " + e.what()));
    } catch (...) {
      error_ = std::make_exception_ptr(Error(Error::Kind::failure, where + " failed"));
    }
    happened_.store(true, std::memory_order_release);
  }

  const program::Program& program_;
  std::mutex mutex_;
  std::atomic<bool> happened_{false};
  std::exception_ptr error_;
};

}  // namespace trireme::runtime
