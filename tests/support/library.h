#pragma once
#include <gtest/gtest.h>
#include <trireme/trireme.h>

#include <functional>
#include <string>
#include <vector>

// For tests that use the library as its users do.
namespace trireme::testing {

// Of every step until the run ends.
inline std::vector<double> losses(Trainer& t) {
  std::vector<double> all;
  t.on_step([&](const Metrics& m) {
    all.push_back(m.loss);
    return Next::go;
  });
  t.run();
  return all;
}

// The message of the Error that a request ends with.
inline std::string refusal(const std::function<void()>& request, Error::Kind kind = Error::Kind::request) {
  try {
    request();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.message();
    return e.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

}  // namespace trireme::testing
