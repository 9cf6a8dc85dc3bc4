#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::test {

// A folder of its own for each test, removed afterwards.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path(name);
  }
  template <class T>
  std::string write_tokens(const std::string& name, const std::vector<T>& tokens) const {
    return write(name, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)});
  }
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string refusal(const std::function<void()>& request) {
  try {
    request();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
    return e.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

}  // namespace trireme::test
