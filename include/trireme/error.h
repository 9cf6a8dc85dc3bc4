#pragma once
#include <trireme/export.h>

#include <exception>
#include <string>
#include <utility>

namespace trireme {

// The one exception type. It gathers context on its way up:
//
//   try { prepare(instruction); }
//   catch (Error& e) { throw e.within("instruction 12 (matmul blocks.0.up)"); }
//
// `request` means that something impossible was asked for and nothing was started; `failure` means the run failed.
class TRIREME_API Error : public std::exception {
 public:
  enum class Kind { request, failure };

  Error(Kind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  // Prepends where it happened: "context: message".
  Error& within(const std::string& context) {
    message_ = context + ": " + message_;
    return *this;
  }

  Kind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Kind kind_;
  std::string message_;
};

}  // namespace trireme
