#pragma once
#include <exception>
#include <string>
#include <utility>

namespace trireme {

// What a function throws, in words; empty: nothing.
template <class Function>
std::string why_not(Function&& function) {
  try {
    std::forward<Function>(function)();
  } catch (const std::exception& e) {
    const std::string why = e.what();
    return why.empty() ? "an exception without a message" : why;
  } catch (...) {
    return "an exception of an unknown type";
  }
  return {};
}

}  // namespace trireme
