#pragma once
#include <memory>
#include <utility>

namespace trireme::comm {

// Something under way. Its buffers belong to it until wait() returns or test() says true. Dropped before that, it is
// waited for and its error is lost; it must not outlive its communicator.
class Request {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool test() = 0;
    virtual void wait() = 0;
  };

  Request() = default;
  explicit Request(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&& other) noexcept {
    abandon();
    state_ = std::move(other.state_);
    return *this;
  }
  ~Request() { abandon(); }

  // True once it is done; rethrows what went wrong. An empty request is done.
  bool test() {
    if (!state_) return true;
    if (!guarded([&] { return state_->test(); })) return false;
    state_.reset();
    return true;
  }
  void wait() {
    if (!state_) return;
    guarded([&] {
      state_->wait();
      return true;
    });
    state_.reset();
  }

 private:
  // What has thrown is over.
  template <class F>
  bool guarded(F&& f) {
    try {
      return f();
    } catch (...) {
      state_.reset();
      throw;
    }
  }
  void abandon() noexcept {
    try {
      wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): nobody is left to tell
    }
  }

  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
